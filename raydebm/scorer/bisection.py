"""Score many texts, bisecting on failure, so that a bad text fails alone. Service and batch stage score through this.

Does not know: torch, Ray, files.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

from raydebm.errors import ScoringError, in_one_line, is_out_of_memory

LESS_MEMORY = "lower scorer.max_length, or score on a device with more memory"

_LOG = logging.getLogger(__name__)


class Scored(Protocol):
    """What one text gets; ``ensemble.TextEnergies``."""

    @property
    def members(self) -> tuple[float, ...]:
        """Energy by each of the K members."""

    @property
    def num_tokens(self) -> int:
        """Tokens that were read."""

    @property
    def num_truncated(self) -> int:
        """Tokens that were cut to fit the context."""

    @property
    def problem_read(self) -> float:
        """Share of the problem's tokens that were read."""

    @property
    def answer_read(self) -> float:
        """Share of the answer's tokens that were read."""


class TextScorer(Protocol):
    """``ensemble.EnsembleScorer``."""

    def score(self, texts: Sequence[tuple[str, str]]) -> Sequence[Scored]:
        """Raises ScoringError when any energy is not finite."""
        ...


def scores_or_errors(scorer: TextScorer, texts: Sequence[tuple[str, str]]) -> list[Scored | ScoringError]:
    """Score each text, in order; a text that cannot be scored gets its error instead.

    Where a batch fails its halves are tried, down to the text at fault: few extra passes, and the others keep their
    energies. A ValueError or TypeError counts as a text's fault as well, since tokenizers raise them for what they
    cannot read; it is logged with its traceback, should the fault be ours. All else, such as a lost device, is raised.
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
            _LOG.exception("a text cannot be scored")
            return [ScoringError(f"the scorer cannot read this text: {type(error).__name__}: {error}")]
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        if len(texts) == 1:
            return [ScoringError(f"{in_one_line(str(error))}; {LESS_MEMORY}")]
    middle = len(texts) // 2
    return scores_or_errors(scorer, texts[:middle]) + scores_or_errors(scorer, texts[middle:])
