"""Recipe section ``decision``: the policy, its calibration, and the guarantee about its answers."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from raydebm.config.section import SampleCount, Section

Rule = Literal["paper", "posterior"]
Signal = Literal["selected", "pool_mean", "equation"]
Profile = Literal["vote", "best_author", "energy", "energy_vote", "posterior"]

NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
MAX_PASSES = 100
"""Limit on passes, because calibration follows every problem through all of them."""


class PolicySettings(Section):
    """Thresholds, passes and waves, with the same meaning and default wherever a policy is set."""

    rule: Rule = "posterior"
    """``posterior``: thresholds on the probability that the answer is right, fitted on labelled problems.
    ``paper``: thresholds on sigma."""
    tau_accept: Probability = 0.9
    """Accept at or above this probability without a further pass; calibration may replace it."""
    tau_answer: Probability = 0.5
    """After the last pass, abstain below this probability, at most ``tau_accept``. Calibration may replace it."""
    tau_field: Probability = 0.9
    """Flag a field of a structured answer for review below this probability; calibration may replace it."""
    theta_sigma: NonNegative = 0.8
    """Accept up to this sigma (energy units) if no constraint is violated; calibration may replace it."""
    theta_abstain: NonNegative = 1.5
    """After the last pass, or after any pass with ``signal: equation``, abstain above this sigma. Must be above
    ``theta_sigma``; calibration may replace it."""
    signal: Signal = "selected"
    """Signal for ``theta_sigma`` and ``theta_abstain``. ``selected``: sigma of the selected candidate; ``pool_mean``:
    mean sigma of the pool (Algorithm 1); both regenerate before they abstain. ``equation``: sigma of the selected
    candidate, abstaining at once above ``theta_abstain`` if no constraint is violated (Eq. 3)."""
    max_passes: Annotated[int, Field(ge=1, le=MAX_PASSES)] = 2
    """Maximum number of passes; 1 never regenerates."""
    num_regenerate: SampleCount = 8
    """Candidates per later pass (N2 in the paper)."""
    fresh_share: Probability = 0.0
    """Share of a later pass's candidates that answer the first prompt again and see no feedback (0 in the paper). Weak
    models repeat the answer that they are shown, so 0.5 is safer for them (docs/log/second_pass.md)."""
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


class CostsConfig(Section):
    """Costs for choosing thresholds without a guarantee, in units of one right answer."""

    wrong: float = Field(1.0, ge=0)
    """Cost of a wrong answer."""
    refusal: float = Field(0.0, ge=0)
    """Cost of an abstention."""
    pass_: float = Field(0.05, alias="pass", ge=0)
    """Cost of a further pass."""

    @property
    def answer_threshold(self) -> float:
        """The lowest probability p at which an answer is worth giving: p - (1 - p) wrong >= -refusal."""
        return min(max((self.wrong - self.refusal) / (1 + self.wrong), 0.0), 1.0)

    @property
    def accept_limit(self) -> float:
        """The probability p above which a further pass cannot pay, because it gains at most (1 - p) (1 + wrong).
        At least ``answer_threshold``."""
        return max(1 - self.pass_ / (1 + self.wrong), self.answer_threshold)


class DecisionConfig(PolicySettings):
    """Accept, regenerate or abstain: limits, their calibration, and the guarantee about the answers (paper Eq. 3 and
    Algorithm 1, or the posterior over answers)."""

    profile: Profile | Literal["auto"] = "auto"
    """Selection profile of the posterior rule. ``auto``: a richer profile replaces a simpler one if a paired test on
    held-out problems is significant."""
    regenerate_with: str | None = None
    """Generator of later passes. Default: the first one (Qwen-2.5-7B in the paper)."""
    lambda_: NonNegative | None = Field(None, alias="lambda")
    """Weight of E_constraint. Default: the calibrated value, else the task's default."""
    calibrate: bool = True
    """Choose lambda and the thresholds on validation problems; otherwise those of this section apply."""
    lambdas: tuple[NonNegative, ...] = (0.0, 0.5, 1.0, 2.0, 4.0)
    """Values of lambda that calibration tries, in addition to ``lambda``."""
    costs: CostsConfig = CostsConfig()
    """Without ``max_error``, thresholds maximise right answers minus these costs."""
    max_error: float | Literal["auto"] | None = None
    """Guarantee: the largest share of wrong answers among those returned (mean violation where labels are violation
    scores). ``auto``: the smallest share that can be guaranteed at ``min_coverage``. Default: no guarantee."""
    confidence: float = Field(0.9, gt=0, lt=1)
    """Probability with which the guarantee holds, over the choice of calibration problems."""
    min_coverage: float = Field(0.5, gt=0, le=1)
    """Share of problems that ``max_error: auto`` must answer."""
    max_field_error: float | None = Field(None, gt=0, lt=1)
    """Guarantee for structured answers: the largest share of wrong fields among those not flagged for review. It sets
    ``tau_field``. Default: no guarantee."""

    @model_validator(mode="after")
    def _possible(self) -> "DecisionConfig":
        if isinstance(self.max_error, float) and not 0 < self.max_error < 1:
            raise ValueError(f"max_error must be strictly between 0 and 1, or auto, got {self.max_error}")
        return self
