"""The policy of a recipe, its calibration, and the guarantee about its answers."""

from typing import Literal

from pydantic import Field, model_validator

from raydebm.config.policy import NonNegative, PolicySettings, Profile
from raydebm.config.section import Section


class TriageConfig(PolicySettings):
    """Accept, regenerate or abstain: by the posterior over answers, or by the paper's Eq. 3 and Algorithm 1."""

    profile: Profile | Literal["auto"] = "auto"
    """Profile by which the posterior's rule selects; ``auto``: a richer profile replaces a simpler one if a paired test
    on held-out problems is significant."""
    lambda_: NonNegative | None = Field(None, alias="lambda")
    """Weight of E_constraint. Default: the calibrated value, else the task's default."""
    regenerate_with: str | None = None
    """Generator of later passes. Default: the first one (Qwen-2.5-7B in the paper)."""


class CalibrationConfig(Section):
    enabled: bool = True
    """Choose lambda and both thresholds on validation problems; otherwise those of ``triage`` apply."""
    lambdas: tuple[NonNegative, ...] = (0.0, 0.5, 1.0, 2.0, 4.0)
    """Values of lambda to try, in addition to the recipe's own."""


class CostsConfig(Section):
    """Costs by which thresholds are chosen without a guarantee, in units of one right answer."""

    wrong: float = Field(1.0, ge=0)
    """Cost of a wrong answer."""
    refusal: float = Field(0.0, ge=0)
    """Cost of an abstention."""
    pass_: float = Field(0.05, alias="pass", ge=0)
    """Cost of a further pass."""

    @property
    def answer_threshold(self) -> float:
        """The probability from which an answer is worth giving: p - (1 - p) wrong >= -refusal."""
        return min(max((self.wrong - self.refusal) / (1 + self.wrong), 0.0), 1.0)

    @property
    def accept_limit(self) -> float:
        """The probability from which no further pass, which gains at most (1 - p) (1 + wrong), can pay for itself; at
        least ``answer_threshold``."""
        return max(1 - self.pass_ / (1 + self.wrong), self.answer_threshold)


class DecisionConfig(Section):
    """Calibration of the posterior's rule, and the guarantee about its answers."""

    costs: CostsConfig = CostsConfig()
    """Without ``max_error``, thresholds maximise right answers minus these costs."""
    max_error: float | Literal["auto"] | None = None
    """Guarantee: the largest share of wrong answers among those returned (mean violation where labels are violation
    scores). ``auto``: the smallest share that can be guaranteed at ``min_coverage``. Default: no guarantee."""
    confidence: float = Field(0.9, gt=0, lt=1)
    """Probability, over calibration problems, with which the guarantee holds."""
    min_coverage: float = Field(0.5, gt=0, le=1)
    """Share of problems that ``max_error: auto`` must answer."""
    max_field_error: float | None = Field(None, gt=0, lt=1)
    """Guarantee for structured answers: the largest share of wrong fields among those not flagged for review. It sets
    ``triage.tau_field``. Default: no guarantee."""

    @model_validator(mode="after")
    def _possible(self) -> "DecisionConfig":
        if isinstance(self.max_error, float) and not 0 < self.max_error < 1:
            raise ValueError(f"decision.max_error must be strictly between 0 and 1, or auto, got {self.max_error}")
        return self
