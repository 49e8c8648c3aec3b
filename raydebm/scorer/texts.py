"""Score the texts of several requests in one pass of the ensemble, so that a bad text fails alone.

Does not know: Ray, torch.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from raydebm.errors import ScoringError
from raydebm.records import Energies
from raydebm.run.tables import EnergyRow
from raydebm.scorer.bisection import Scored, TextScorer, scores_or_errors

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TextToScore:
    """One (problem, candidate) text pair for the ensemble."""

    candidate_id: str
    prompt: str
    text: str


def score_texts(scorer: TextScorer, texts: Sequence[tuple[str, str]]) -> list[EnergyRow]:
    """Rows without ids; a text that could not be scored has its error in its row."""
    return [
        EnergyRow(candidate_id="", members=None, error=str(one))
        if isinstance(one, ScoringError)
        else EnergyRow(
            candidate_id="",
            members=one.members,
            num_tokens=one.num_tokens,
            num_truncated=one.num_truncated,
            problem_read=one.problem_read,
            answer_read=one.answer_read,
        )
        for one in scores_or_errors(scorer, texts)
    ]


def energies_of_lists(ensemble: TextScorer, lists: Sequence[Sequence[TextToScore]]) -> list[list[Energies | None]]:
    """Energies of each list's texts, in order; None for a text without finite energies."""
    energies = iter(_energies(ensemble, [text for texts in lists for text in texts]))
    return [[next(energies) for _ in texts] for texts in lists]


def _energies(ensemble: TextScorer, texts: Sequence[TextToScore]) -> list[Energies | None]:
    """Requests that ask the same at the same time share the work."""
    pairs = [(text.prompt, text.text) for text in texts]
    distinct = list(dict.fromkeys(pairs))
    by_pair = dict(zip(distinct, scores_or_errors(ensemble, distinct), strict=True))
    return [_one(text, by_pair[pair]) for text, pair in zip(texts, pairs, strict=True)]


def _one(text: TextToScore, scored: Scored | ScoringError) -> Energies | None:
    if isinstance(scored, ScoringError):
        log.warning("candidate %s could not be scored: %s", text.candidate_id, scored)
        return None
    return Energies(
        candidate_id=text.candidate_id,
        members=scored.members,
        num_tokens=scored.num_tokens,
        num_truncated=scored.num_truncated,
    )
