"""How candidates are sampled."""

from pydantic import Field

from raydebm.config.section import SampleCount, Section
from raydebm.records import Sampling


class GenerationConfig(Section):
    """Paper: 4 generators x 8 candidates, T=0.7, top-p 0.95, one request per candidate."""

    num_samples: SampleCount = 8
    """Candidates per generator and problem."""
    temperature: float = Field(0.7, ge=0)
    """Sampling temperature; the greedy sample uses 0."""
    top_p: float = Field(0.95, gt=0, le=1)
    """Probability mass of nucleus sampling."""
    max_tokens: int | None = Field(None, ge=1)
    """Most tokens of a candidate; None: the task's default."""
    greedy: bool = True
    """Add one sample at temperature 0 per generator, the greedy baseline."""
    max_usd: float | None = Field(None, gt=0)
    """Stop sending requests when the run has cost this much: candidates, later passes, judges and rewriting together.
    A failed request counts what it was billed, one that timed out what it may have cost at most."""
    num_in_flight: int = Field(256, ge=1)
    """Open requests over all endpoints of one process."""
    num_processes: int = Field(1, ge=1)
    """Generation actors per generator group."""
    max_failed_frac: float = Field(0.5, gt=0, le=1)
    """Stop the run when a larger share of its requests failed; completed requests are kept."""
    waves: tuple[SampleCount, ...] | None = Field(None, min_length=1)
    """Sample each problem in waves of these sizes, over all generators, the last one repeating, and end it when the
    rest of its candidates could hardly change the vote (docs/decision.md); None: all candidates at once."""

    def sampling(self, *, max_tokens: int, greedy: bool = False) -> Sampling:
        """Settings of one request; a greedy one has temperature 0."""
        if greedy:
            return Sampling(temperature=0.0, top_p=1.0, max_tokens=max_tokens)
        return Sampling(temperature=self.temperature, top_p=self.top_p, max_tokens=max_tokens)
