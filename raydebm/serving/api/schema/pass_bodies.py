"""Response bodies about the passes of one decision: what was sampled, by whom, and why sampling ended."""

from typing import Literal

from pydantic import BaseModel


class StopFields(BaseModel):
    """Why sampling in waves ended, and what that saved; all null where a pass is sampled at once."""

    stop_reason: Literal["accept", "abstain", "cost", "budget"] | None = None
    """accept: the answer is settled; abstain: no answer will be certain enough; cost: more samples are not worth
    theirs; budget: everything was sampled that the pass, the deadline and the generators allowed."""
    stop_words: str | None = None
    """The same as a sentence, with the numbers."""
    num_planned: int | None = None
    """Samples of the whole pass."""
    num_samples: int | None = None
    """Samples that were drawn, failed ones included."""
    num_cancelled: int | None = None
    """Requests that were cancelled in flight. They may have cost something, and do not count as saved."""
    tokens_saved: int | None = None
    """Samples that were never asked for times the mean tokens of those that were drawn; null: none reports tokens."""
    saved_frac: float | None = None
    """Share of the planned samples that were never asked for."""


class PassBody(StopFields):
    pass_index: int
    num_requested: int
    num_failed: int
    selected: str | None
    signal: float | None
    """What was compared with the thresholds."""
    penalty: float | None
    decision: str
    confidence: float | None = None
    """Probability that the selection is right."""
    feedback: str | None
    """What the next pass was told."""


class GeneratorBody(BaseModel):
    name: str
    asked: int
    failed: int
    """Asked, and without a text that could be used; the late ones included."""
    late: int = 0
    """Failed because not there, or not checked and scored, within ``deadline_ms``."""
    over_budget: int = 0
    """Not asked, because each might have cost more than what was left of ``max_usd``."""
    cancelled: int = 0
    """Asked, and cancelled in flight, because the others settled the pass."""
    error: str | None
    """The first error, when some failed."""
