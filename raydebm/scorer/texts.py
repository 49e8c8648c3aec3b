"""Score the texts of several requests in one pass of the ensemble. A bad text does not affect the others.

Used by the service and the batch stages. Independent of: Ray, torch, files.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Protocol

from raydebm.errors import ScoringError, in_one_line, is_out_of_memory
from raydebm.records import Energies
from raydebm.run.tables import EnergyRow

log = logging.getLogger(__name__)
LESS_MEMORY = "lower scorer.max_length, or score on a device with more memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEnergies:
    """Energies of one text."""

    members: tuple[float, ...]
    """One finite energy per selected adapter. Lower is better."""
    num_tokens: int
    """Number of tokens after truncation, including special ones."""
    num_truncated: int
    """Number of tokens cut to fit the context."""
    problem_read: float = 1.0
    """Share of the problem's tokens that were read."""
    answer_read: float = 1.0
    """Share of the answer's tokens that were read."""


class TextScorer(Protocol):
    """Interface of ``ensemble.EnsembleScorer``, without torch."""

    def score(self, texts: Sequence[tuple[str, str]]) -> Sequence[TextEnergies]:
        """Energies of texts. Raises ScoringError if any energy is not finite."""
        ...


def scores_or_errors(scorer: TextScorer, texts: Sequence[tuple[str, str]]) -> list[TextEnergies | ScoringError]:
    """Score each text, in order. A text that cannot be scored gets its error instead.

    If a batch fails, its halves are tried, down to the text at fault: this takes few extra passes, and the other texts
    keep their energies. A ValueError or TypeError counts as the text's fault, because tokenizers raise them for
    unreadable texts; it is logged with its traceback in case it is a bug. Any other error, such as a lost device, is
    raised.
    """
    if not texts:
        return []
    try:
        return list(scorer.score(texts))
    except ScoringError as error:
        if len(texts) == 1:
            return [error]
    except (ValueError, TypeError) as error:
        if len(texts) == 1:
            log.exception("a text cannot be scored")
            return [ScoringError(f"the scorer cannot read this text: {type(error).__name__}: {error}")]
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        if len(texts) == 1:
            return [ScoringError(f"{in_one_line(str(error))}; {LESS_MEMORY}")]
    middle = len(texts) // 2
    return scores_or_errors(scorer, texts[:middle]) + scores_or_errors(scorer, texts[middle:])


@dataclass(frozen=True, slots=True)
class TextToScore:
    """One (problem, candidate) text pair for the ensemble."""

    candidate_id: str
    prompt: str
    text: str


def rank_correlation(
    first: Sequence[TextEnergies | ScoringError], second: Sequence[TextEnergies | ScoringError]
) -> float | None:
    """Spearman's rank correlation of the mean energies of the same texts, scored twice.

    Texts that failed the first time are left out. None if another text failed the second time, or if one time all mean
    energies are equal.
    """
    from scipy.stats import spearmanr  # imported here because it is slow

    pairs = [(one, other) for one, other in zip(first, second, strict=True) if not isinstance(one, ScoringError)]
    scored = [other for _, other in pairs if not isinstance(other, ScoringError)]
    if len(scored) < len(pairs):
        return None
    means = [[fmean(text.members) for text in texts] for texts in ([one for one, _ in pairs], scored)]
    if any(len(set(of_one_time)) < 2 for of_one_time in means):
        return None
    return float(spearmanr(*means).statistic)


def score_texts(scorer: TextScorer, texts: Sequence[tuple[str, str]]) -> list[EnergyRow]:
    """Score texts, as rows with empty ids. The row of a text that could not be scored has its error."""
    return [
        EnergyRow(candidate_id="", members=None, error=str(one))
        if isinstance(one, ScoringError)
        else EnergyRow(candidate_id="", **asdict(one))
        for one in scores_or_errors(scorer, texts)
    ]


def energies_of_lists(ensemble: TextScorer, lists: Sequence[Sequence[TextToScore]]) -> list[list[Energies | None]]:
    """Energies of each list's texts, in order. None for a text without finite energies. Equal texts are scored once."""
    distinct = list(dict.fromkeys((text.prompt, text.text) for texts in lists for text in texts))
    by_pair = dict(zip(distinct, scores_or_errors(ensemble, distinct), strict=True))
    return [[_energies(text, by_pair[text.prompt, text.text]) for text in texts] for texts in lists]


def _energies(text: TextToScore, scored: TextEnergies | ScoringError) -> Energies | None:
    if isinstance(scored, ScoringError):
        log.warning("candidate %s could not be scored: %s", text.candidate_id, scored)
        return None
    return Energies(
        candidate_id=text.candidate_id,
        members=scored.members,
        num_tokens=scored.num_tokens,
        num_truncated=scored.num_truncated,
    )
