"""Baselines whose scores are evidence for the posterior, loaded together for the service and for ``best_of``."""

import logging
from collections.abc import Mapping, Sequence

from raydebm.config import BaselineConfig
from raydebm.evaluation.baselines import build_scorer
from raydebm.evaluation.baselines.protocol import CandidateScorer, score_candidates
from raydebm.records import Candidate, Problem
from raydebm.run.addresses import local_copy
from raydebm.run.directory import RunDir

log = logging.getLogger(__name__)


class EvidenceScorers:
    """All baselines that are evidence, combined in one scorer."""

    def __init__(self, scorers: Sequence[CandidateScorer]) -> None:
        self._scorers = tuple(scorers)

    @classmethod
    def load(cls, configs: Sequence[BaselineConfig], run: RunDir) -> "EvidenceScorers":
        """Load the baselines.

        Args:
            run: Run with the checkpoints of baselines that were trained on its pairs.

        Raises:
            CheckpointError: a model or a checkpoint cannot be read.
        """
        return cls([_loaded(config, run) for config in configs])

    def scores(self, texts: Sequence[tuple[str, str]]) -> list[Mapping[str, float]]:
        """Scores of each (problem, answer) by baseline and part. Failed scores are logged and left out."""
        problems = {prompt: Problem(task="", problem_id=prompt, prompt=prompt) for prompt, _ in texts}
        candidates = [
            Candidate(candidate_id=str(place), task="", problem_id=prompt, generator="", text=text)
            for place, (prompt, text) in enumerate(texts)
        ]
        mappings: list[dict[str, float]] = [{} for _ in texts]
        for scorer in self._scorers:
            rows = score_candidates(scorer, problems, candidates)
            for mapping, row in zip(mappings, rows, strict=True):
                if row.score is None:
                    log.warning("baseline %r could not score a text: %s", row.name, row.error)
                else:
                    mapping[row.name] = row.score
                    mapping |= {f"{row.name}.{part}": value for part, value in row.parts.items()}
        return list(mappings)


def _loaded(config: BaselineConfig, run: RunDir) -> CandidateScorer:
    if not config.learns_from_pairs:
        return build_scorer(config)
    with local_copy(run.baseline_uri(config.name)) as folder:
        return build_scorer(config, folder=folder)
