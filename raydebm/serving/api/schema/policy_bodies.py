"""What is asked about a service's policies, and the answers. Does not know: Ray, HTTP, files."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from raydebm.serving.api.schema.stored_bodies import Name, Time
from raydebm.serving.settings.fields import Body, Data, Text


class _Read(BaseModel):
    model_config = ConfigDict(from_attributes=True, use_attribute_docstrings=True)


class FirstPolicyBody(_Read):
    version: str
    """Id of the policy, as in `versions.policy` of the answers that it gives."""
    policy_id: str
    """Its id below the service's ceilings and with its deadline, as in the list of decisions."""


class SecondPolicyBody(FirstPolicyBody):
    percent: float
    """Share of the problems that it answers; 0: a shadow alone."""
    time: datetime
    """When it was put there."""
    reason: str


class PolicyChangeBody(_Read):
    number: int
    time: datetime
    action: Literal["promote", "rollback"]
    reason: str
    by: str | None
    """Name of the API key; null: the command line."""
    version: str
    """The policy that came into force."""
    replaced: str
    """The policy that was in force until then."""
    undoes: int | None
    """The promotion that a roll-back undid."""


class PoliciesBody(_Read):
    """As the replica that answers has them; the history as the run directory has it."""

    tasks: list[str]
    """Tasks whose policies can be asked for here, the first run's first."""
    first: FirstPolicyBody
    second: SecondPolicyBody | None
    """Null where one policy decides alone."""
    history: list[PolicyChangeBody]
    """The newest change first."""


TaskName = Annotated[Text | None, Field(max_length=200)]


class PolicyQuery(Body):
    """Whose policies."""

    task: TaskName = None
    """A served task; null: the first one."""


class ChangeRequest(PolicyQuery):
    """Why the policy is changed."""

    reason: Annotated[Text, Field(max_length=500)] = ""
    """Kept in the history."""


class TrialRequest(ChangeRequest):
    """A policy to try next to the one in force."""

    policy: Data
    """As `calibration/policy.json` holds one."""
    percent: float = Field(0.0, ge=0, le=100)
    """Share of the problems that it answers, as a canary; 0: a shadow alone."""


class TrialBody(_Read):
    """The policies after a trial was begun or ended."""

    second: SecondPolicyBody | None
    """Null after it was ended."""
    applied: bool
    """See `ChangeBody`."""
    not_applied: str | None = None
    """Likewise."""


class ChangeBody(_Read):
    change: PolicyChangeBody
    applied: bool
    """Whether the replica that answers decides by it from now on; the others follow within seconds. False: this service
    takes it at its next change."""
    not_applied: str | None = None
    """Why the replica could not take it, though it is written; null where it did."""


class ComparisonQuery(PolicyQuery):
    """Which decisions, and which difference is asked about."""

    since: Time | None = None
    """At or after; with a time zone, such as 2026-01-31T12:00Z."""
    until: Time | None = None
    """Before."""
    first: Name | None = None
    """Id of the first policy's file; with `second`. Left out: the pair of the newest decision."""
    second: Name | None = None
    margin: float = Field(0.05, gt=0, lt=1)
    """Difference in the share of right answers for which `outcomes_needed` is computed."""


class EstimateBody(_Read):
    value: float | None
    low: float | None
    """Lower end of the 95 % interval, by bootstrap over problems."""
    high: float | None
    n: int


class PairedTestBody(_Read):
    """A paired test of the second policy against the first."""

    difference: EstimateBody
    """The second minus the first."""
    only_one: float
    """Decisions of which this holds for the second policy alone."""
    only_other: float
    """For the first alone."""
    p_value: float | None
    """Exact McNemar test, two-sided, for one look at the outcomes; null without any."""
    p_holm: float | None
    """After Holm's correction for the three tests."""


class PolicyFiguresBody(_Read):
    """One policy on the decisions where the choices of both are known."""

    version: str
    decided: int
    """Decisions that it made itself, as first policy or canary."""
    answered: int
    coverage: float | None
    right: int
    """Right answers given out, of the decisions with an outcome that judges both."""
    wrong: int
    accuracy: float | None
    """Share of right ones among the judged answers."""
    accuracy_low: float | None
    """Lower end of the exact 95 % interval (Clopper and Pearson)."""
    accuracy_high: float | None
    candidates: float | None
    """Mean per decision."""
    cost_usd: float | None
    """Mean per decision; null where no generator reports cost."""
    cost_per_right_usd: float | None
    """Mean cost of a decision, divided by the share of decisions that are answered rightly, as outcomes tell; null
    where costs or outcomes are not known, or nothing was right."""


class ComparisonBody(_Read):
    """Two policies on the same decisions, the newest per problem."""

    first: PolicyFiguresBody
    second: PolicyFiguresBody
    num_decisions: int
    num_repeated: int
    """Older decisions about the same problems, which do not count."""
    num_agree: int
    """Both decided the same and chose the same answer: counted, and no evidence for either."""
    num_differ: int
    num_unknown: int
    """The policy that did not answer would have sampled more, so its choice is not known."""
    num_inexact: int
    agreement: float | None
    """Share of the known choices in which both agree."""
    num_outcomes: int
    """With an outcome that judges both choices."""
    num_unjudged: int
    right: PairedTestBody
    wrong: PairedTestBody
    answered: PairedTestBody
    candidates: EstimateBody
    candidates_p: float | None
    """Sign-flip permutation test."""
    cost_usd: EstimateBody
    cost_p: float | None
    margin: float
    outcomes_needed: int | None
    """Outcomes more that would show a difference of `margin` in right answers with probability 0.8; null where no
    outcome tells the policies apart."""
