"""Baselines whose scores are evidence of the posterior, loaded together for the service and for ``best_of``."""

import logging
from collections.abc import Mapping, Sequence

from raydebm.config import BaselineConfig
from raydebm.evaluation.baselines import build_scorer
from raydebm.evaluation.baselines.protocol import CandidateScorer, PoolTexts, TextScore, scored_pools
from raydebm.records import Problem
from raydebm.run.addresses import local_copy
from raydebm.run.directory import RunDir

log = logging.getLogger(__name__)


class EvidenceScorers:
    """All baselines that are evidence, as one scorer."""

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
        places: dict[str, dict[str, list[int]]] = {}
        for place, (prompt, text) in enumerate(texts):
            places.setdefault(prompt, {}).setdefault(text, []).append(place)
        pools = [
            PoolTexts(problem=Problem(task="", problem_id=prompt, prompt=prompt), texts=tuple(by_text))
            for prompt, by_text in places.items()
        ]
        mappings: list[dict[str, float]] = [{} for _ in texts]
        for scorer in self._scorers:
            for pool, scores in zip(pools, scored_pools(scorer, pools), strict=True):
                for text, score in zip(pool.texts, scores, strict=True):
                    for place in places[pool.problem.prompt][text]:
                        mappings[place] |= _named(scorer.name, score)
        return list(mappings)


def _loaded(config: BaselineConfig, run: RunDir) -> CandidateScorer:
    if not config.learns_from_pairs:
        return build_scorer(config)
    with local_copy(run.baseline_uri(config.name)) as folder:
        return build_scorer(config, folder=folder)


def _named(name: str, score: TextScore) -> dict[str, float]:
    if score.value is None:
        log.warning("baseline %r could not score a text: %s", name, score.error)
        return {}
    return {name: score.value, **{f"{name}.{part}": value for part, value in score.parts.items()}}
