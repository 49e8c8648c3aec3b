"""The benchmark's official evaluation: 8 commonsense and 5 hard constraints, and the pass rates made of them.

In:   Trip, plan (day objects or None), Catalogue of the sandbox database.
Out:  Outcomes by constraint; PassRates over many plans.

Written from the published rules. Differences from the authors' program: model output is never evaluated as code,
nothing is read at import, and where that program crashes, the constraint fails with a reason.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from raydebm.tasks.travelplanner.catalogue import Catalogue
from raydebm.tasks.travelplanner.official.commonsense import COMMONSENSE, RuleOutcome
from raydebm.tasks.travelplanner.official.hard import HARD, total_cost
from raydebm.tasks.travelplanner.official.plan_fields import Plan
from raydebm.tasks.travelplanner.trip import Trip

__all__ = ["COMMONSENSE", "HARD", "PassRates", "RuleOutcome", "Verdicts", "evaluate", "pass_rates", "total_cost"]

GATES = ("is_not_absent", "is_valid_information_in_sandbox")
"""Hard constraints are looked at only when these two hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """The outcomes of one plan, by the evaluator's names."""

    delivered: bool
    commonsense: Mapping[str, RuleOutcome]
    """Empty when there is no plan."""
    hard: Mapping[str, RuleOutcome]
    """Empty when the hard constraints were not looked at."""
    num_asked: int
    """Hard constraints that the query asks for, looked at or not."""

    @property
    def passes_commonsense(self) -> bool:
        """Whether every commonsense constraint holds, as the official evaluator counts."""
        return self.delivered and all(outcome.verdict is True for outcome in self.commonsense.values())

    @property
    def passes_hard(self) -> bool:
        """Whether no hard constraint is broken, as the official evaluator counts."""
        return bool(self.hard) and all(outcome.verdict is not False for outcome in self.hard.values())

    @property
    def passes(self) -> bool:
        """The final pass."""
        return self.passes_commonsense and self.passes_hard


def evaluate(trip: Trip, plan: Plan | None, catalogue: Catalogue) -> Verdicts:
    """All constraints of one plan. None and a plan without days count as not delivered."""
    asked = sum(
        wish is not None
        for wish in (trip.budget, trip.house_rule, trip.cuisine or None, trip.room_type, trip.transportation)
    )
    if not plan:
        return Verdicts(delivered=False, commonsense={}, hard={}, num_asked=asked)
    commonsense = {name: rule(trip, plan, catalogue) for name, rule in COMMONSENSE.items()}
    reached = all(commonsense[name].verdict for name in GATES)
    hard = {name: rule(trip, plan, catalogue) for name, rule in HARD.items()} if reached else {}
    return Verdicts(delivered=True, commonsense=commonsense, hard=hard, num_asked=asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRates:
    """What the benchmark reports, each in [0, 1]; ``n`` problems, one plan each."""

    n: int
    delivery: float
    commonsense_micro: float
    """Share of all commonsense constraints that hold."""
    commonsense_macro: float
    """Share of plans in which all of them hold."""
    hard_micro: float
    """Share of all requested hard constraints that hold; those not looked at do not."""
    hard_macro: float
    final: float


def pass_rates(verdicts: Iterable[Verdicts]) -> PassRates:
    """Aggregate one plan for each problem; all rates are 0 without any plan."""
    rows = list(verdicts)
    asked = sum(row.num_asked for row in rows)
    return PassRates(
        n=len(rows),
        delivery=_share(sum(row.delivered for row in rows), len(rows)),
        commonsense_micro=_share(sum(_count(row.commonsense) for row in rows), len(COMMONSENSE) * len(rows)),
        commonsense_macro=_share(sum(row.passes_commonsense for row in rows), len(rows)),
        hard_micro=_share(sum(_count(row.hard) for row in rows), asked),
        hard_macro=_share(sum(row.passes_hard for row in rows), len(rows)),
        final=_share(sum(row.passes for row in rows), len(rows)),
    )


def _count(outcomes: Mapping[str, RuleOutcome]) -> int:
    return sum(outcome.verdict is True for outcome in outcomes.values())


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
