"""How likely a language model holds an answer to be, from the log-probabilities of its tokens.

Pure. Used where an answer is written, by its own generator, and where it is read, by another model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

WORST_SHARE = 10
"""``LogProbs.worst`` is the mean over one in so many tokens, at least one."""


@dataclass(frozen=True, slots=True)
class LogProbs:
    """How likely a language model holds a text to be: a summary over its tokens, in nats; higher is likelier."""

    mean: float
    """Mean log-probability of a token."""
    worst: float
    """The same over the least likely tenth."""

    @classmethod
    def of(cls, values: Sequence[float]) -> "LogProbs":
        """Summarize the tokens' log-probabilities, at least one."""
        worst = sorted(values)[: max(len(values) // WORST_SHARE, 1)]
        return cls(mean=sum(values) / len(values), worst=sum(worst) / len(worst))
