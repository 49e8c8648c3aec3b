"""Settings of a policy that a recipe states, calibration chooses, and a request or a replay changes."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from raydebm.config.section import SampleCount, Section

Rule = Literal["paper", "posterior"]
Signal = Literal["selected", "pool_mean", "equation"]
Profile = Literal["vote", "best_author", "energy", "energy_vote", "posterior"]

NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
MOST_PASSES = 100
"""Calibration walks every problem through all of them."""


class PolicySettings(Section):
    """Thresholds, passes and waves, with the same meaning and default wherever a policy is stated."""

    rule: Rule = "posterior"
    """``posterior``: thresholds on the probability that the answer is right, fitted on labelled problems.
    ``paper``: thresholds on sigma."""
    tau_accept: Probability = 0.9
    """Accept at or above this probability without a further pass; calibration may replace it."""
    tau_answer: Probability = 0.5
    """After the last pass, abstain below this probability; at most ``tau_accept``. Calibration may replace it."""
    tau_field: Probability = 0.9
    """Flag a field of a structured answer for review below this probability; calibration may replace it."""
    theta_sigma: NonNegative = 0.8
    """Accept up to this sigma (energy units) if no constraint is violated; calibration may replace it."""
    theta_abstain: NonNegative = 1.5
    """After the last pass (``signal: equation``: after any), abstain above this sigma; above ``theta_sigma``.
    Calibration may replace it."""
    signal: Signal = "selected"
    """Signal that is compared with the thresholds. ``selected``: sigma of the selected candidate; ``pool_mean``: mean
    sigma of the pool (Algorithm 1); both regenerate before they abstain. ``equation``: sigma of the selected candidate,
    abstaining at once above ``theta_abstain`` if no constraint is violated (Eq. 3)."""
    max_passes: Annotated[int, Field(ge=1, le=MOST_PASSES)] = 2
    """Maximum number of passes; 1 never regenerates."""
    num_regenerate: SampleCount = 8
    """Candidates per later pass (N2 in the paper)."""
    fresh_share: Probability = 0.0
    """Share of a later pass's candidates that answer the first prompt again and see no feedback (0 in the paper). Weak
    models repeat what they are shown: half of each is the safer choice for them (docs/log/second_pass.md)."""
    waves: Annotated[tuple[SampleCount, ...], Field(min_length=1)] | None = None
    """Sizes of the waves in which each pass is sampled; the last size repeats. A pass ends when the rest of it could
    hardly change the answer or make it certain (docs/decision.md). Default: the whole pass at once."""

    @model_validator(mode="after")
    def _ordered(self) -> "PolicySettings":
        if self.tau_answer > self.tau_accept:
            raise ValueError(f"tau_answer must be at most tau_accept, got {self.tau_answer} and {self.tau_accept}")
        if not self.theta_sigma < self.theta_abstain:
            raise ValueError(
                f"theta_sigma must be below theta_abstain, got {self.theta_sigma} and {self.theta_abstain}"
            )
        return self
