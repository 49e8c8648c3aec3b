"""How likely a language model holds an answer to be: a summary of the log-probabilities of its tokens.

Pure. Used where an answer is written (its own generator) and where it is read (another model).
"""

from collections.abc import Sequence
from dataclasses import dataclass

WORST_SHARE = 10
"""``worst`` is the mean over one in so many tokens, at least one."""


@dataclass(frozen=True, slots=True)
class LogProbs:
    """In nats per token; higher is likelier."""

    mean: float
    """Over all tokens of the answer."""
    worst: float
    """Over the least likely tenth."""

    @classmethod
    def of(cls, values: Sequence[float]) -> "LogProbs":
        """Summarize the tokens' log-probabilities, at least one."""
        worst = sorted(values)[: max(len(values) // WORST_SHARE, 1)]
        return cls(mean=sum(values) / len(values), worst=sum(worst) / len(worst))
