"""Result of a reader for one text. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass

from raydebm.baselines.protocol import TextScore
from raydebm.generators.requests import LogProbs


@dataclass(frozen=True, slots=True)
class Reading:
    """Signals over an answer's tokens, higher is better, or the reason for their absence."""

    logprob: float | None
    """Mean log-probability, in nats."""
    entropy: float | None
    """Minus the mean entropy of the next-token distribution, in nats. None if only log-probabilities are known."""
    worst: float | None
    """Mean log-probability of the worst tenth."""
    num_tokens: int = 0
    error: str | None = None

    @classmethod
    def of(cls, log_probs: Sequence[float], entropies: Sequence[float] | None) -> "Reading":
        """Average the values of an answer's tokens, at least one."""
        summary = LogProbs.of(log_probs)
        return cls(
            logprob=summary.mean,
            entropy=None if entropies is None else -sum(entropies) / len(entropies),
            worst=summary.worst,
            num_tokens=len(log_probs),
        )

    @classmethod
    def failed(cls, error: str) -> "Reading":
        """Result for an answer that could not be read."""
        return cls(None, None, None, error=error)

    def signals(self) -> dict[str, float]:
        """Known signals by name."""
        named = {"logprob": self.logprob, "entropy": self.entropy, "worst": self.worst}
        return {name: value for name, value in named.items() if value is not None}

    def score(self) -> TextScore:
        """Entropy, with the other signals as parts. Without an entropy, the mean log-probability."""
        if self.logprob is None or self.worst is None:
            return TextScore.failed(self.error or "the model gives no log-probabilities")
        if self.entropy is None:
            return TextScore.of(self.logprob, {"worst": self.worst})
        return TextScore.of(self.entropy, {"logprob": self.logprob, "worst": self.worst})
