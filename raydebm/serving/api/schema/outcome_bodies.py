"""What is reported about decisions, and the answers. Does not know: Ray, HTTP, files."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, StrictBool

from raydebm.serving.settings.fields import Body, Text

MAX_ANSWER_CHARS = 64_000
MAX_NOTE_CHARS = 2_000

Verdict = Literal["right", "wrong"]


class OutcomeRequest(Body):
    """What became of a decision."""

    correct: StrictBool
    """Whether the selected candidate was right: the answer given out, or the one that an abstention held back."""
    by: Annotated[Text, Field(min_length=1, max_length=100)]
    """Who says so. A later report of the same name takes the place of the earlier one, which is kept as history."""
    answer: Annotated[Text, Field(min_length=1, max_length=MAX_ANSWER_CHARS)] | None = None
    """The correct answer, written as the task reads answers."""
    note: Annotated[Text, Field(max_length=MAX_NOTE_CHARS)] | None = None


class OutcomeReceipt(BaseModel):
    """What is stored now."""

    record_id: str
    status: Literal["created", "replaced", "unchanged"]
    """unchanged: this very report was stored before. replaced: another one by the same name was."""
    outcome: Verdict
    """What counts for the decision: the report that arrived last."""
    disputed: bool
    """Whether the current reports of several people differ."""
    reports: int
    """Reports about the decision, replaced ones included."""


class OutcomeBody(BaseModel):
    """One report about a decision."""

    time: datetime
    """When it was received, by the clock of the replica that received it."""
    outcome: Verdict
    by: str
    answer: str | None
    note: str | None
    key: str | None
    """Name of the API key that sent it."""
    current: bool
    """Whether it is the last one by this name."""


class ClaimBody(BaseModel):
    """A promised error rate, and the bet against it."""

    max_error: float
    delta: float
    """Probability of a false alarm, ever."""
    by: list[str] | None
    """Whose reports are counted; null: everybody's."""
    outcomes: int
    """Answered requests with an outcome that were bet on."""
    wrong: int
    log10_wealth: float
    """Logarithm of the betting martingale M: evidence against the promise."""
    log10_alarm: float
    """An alarm is raised when ``log10_wealth`` reaches it: log10(1 / delta)."""
    suspended: bool
    reason: str | None


class PolicyOutcomes(BaseModel):
    """Coverage and live accuracy of one policy."""

    policy_id: str | None
    """Its id, as in the list of decisions; null for decisions of versions that did not keep it."""
    served: bool
    """Whether it is the policy that a task is served with now."""
    decisions: int
    accepted: int
    coverage: float | None
    """Share of decisions that were answered."""
    right: int
    """Answered requests whose outcome is right."""
    wrong: int
    accuracy: float | None
    accuracy_low: float | None
    """Bounds of the exact 95 % interval (Clopper and Pearson)."""
    accuracy_high: float | None
    refused_right: int
    """Abstentions that held a right answer back."""
    refused_wrong: int
    claim: ClaimBody | None
    """Null where nothing is promised, or ``watch.max_error`` is not set."""


class OutcomeFigures(BaseModel):
    """Outcomes by policy, the policy with the newest decision first."""

    decisions: int
    with_outcome: int
    """Decisions with an outcome, also those that are no longer stored themselves."""
    disputed: int
    policies: list[PolicyOutcomes]
    """At most 50."""
