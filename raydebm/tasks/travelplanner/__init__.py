"""TravelPlanner in sole-planning mode: an itinerary for a query, from the given reference information (paper 4.1).

Checks use the reference information in the problem and need no gold. A problem without it is checked against the
benchmark's database if the environment names its folder (``RAYDEBM_TRAVELPLANNER_DB``). Without either, only the plan
itself is checked, and plans are not labeled.

A label is the violation score: the mean of eight dimensions in [0, 1] (``dimensions``), 0 being best. Its verdict is
``correct`` exactly when the score is 0 (the paper's pass@1 at threshold 0). Pairs are made from the scores: the best
quarter of a problem's candidates against the rest (``POSITIVE_FRAC``), regardless of their verdicts.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from raydebm.identity import canonical_json
from raydebm.records import Gold, Message, Problem
from raydebm.tasks.base import Answer, Judgement, TaskDefaults, judgement, unlabeled
from raydebm.tasks.constraints import Constraint, Finding
from raydebm.tasks.fields import KEY, leaves
from raydebm.tasks.file_backed import FileTask, Pairs
from raydebm.tasks.travelplanner.catalogue import Catalogue
from raydebm.tasks.travelplanner.database import VARIABLE, database_folder, read_database
from raydebm.tasks.travelplanner.dimensions import (
    CONSTRAINED,
    UNPARSED,
    Dimension,
    dimension_findings,
    dimension_values,
    violation_score,
)
from raydebm.tasks.travelplanner.plans import PLAN_FIELDS, read_plan, render_plan, trip_of
from raydebm.tasks.travelplanner.trip_reference import catalogue_from
from raydebm.tasks.travelplanner.trips import TASK, load_problems, problem_of_text
from raydebm.tasks.travelplanner.view import NOTHING, PlanView, view_of

WEIGHT = 1.0
"""Weight of each term of E_constraint; the paper gives no other weights."""

_MAX_REASONS = 5

_INSTRUCTIONS = (
    "Plan the trip that the user asks for, day by day. Use only restaurants, attractions, accommodations, flights and "
    "drives that the reference information lists, and write their names exactly as they stand there, each followed by "
    "a comma and its city. Stay within the budget for all travellers together, meet every stated wish, start and end "
    "at the place of departure, never repeat a restaurant or attraction, and keep to minimum nights.\n"
    "Answer with one JSON list and nothing after it. Each day is an object with the fields day, current_city, "
    "transportation, breakfast, attraction, lunch, dinner and accommodation; write - for what does not apply. On a day "
    "of travel, current_city is 'from A to B', and transportation is one of 'Flight Number: F1234567, from A to B, "
    "Departure Time: 08:00, Arrival Time: 09:30', 'Self-driving, from A to B' and 'Taxi, from A to B'. Put a semicolon "
    "after each attraction. The form of an answer, with made-up names:\n"
    '[{"day": 1, "current_city": "from Ada to Bree", "transportation": "Flight Number: F1234567, from Ada to Bree, '
    'Departure Time: 08:00, Arrival Time: 09:30", "breakfast": "-", "attraction": "Old Mill, Bree;Town Park, Bree;", '
    '"lunch": "Corner Cafe, Bree", "dinner": "Blue Door, Bree", "accommodation": "Quiet Loft, Bree"}, ...]'
)


class TravelPlanner(FileTask):
    """The task. An answer is a list of day objects in canonical form (see ``plans``)."""

    name: ClassVar[str] = TASK
    defaults: ClassVar[TaskDefaults] = TaskDefaults(
        max_length=8192, batch_size=32, patience=2, lambda_=2.0, max_tokens=4096, answers_compete=False
    )
    instructions: ClassVar[str] = _INSTRUCTIONS

    def pairs(self, split: str, source: str | None, seed: int) -> Pairs:
        """Problems with gold. The benchmark's train and validation parts, 225 problems, are divided into 175 and 50.

        The source is None or ``"hub:osunlp/TravelPlanner"`` for the published data; or a folder with
        ``problems_train.jsonl.gz`` and ``problems_validation.jsonl.gz``; or one ``.jsonl`` file with the benchmark's
        fields, not divided.
        """
        return load_problems(split, source)

    def messages(self, problem: Problem) -> tuple[Message, ...]:
        trip_of(problem.data)  # fails before anyone pays for an answer that cannot be checked
        return super().messages(problem)

    def problem_from_text(self, text: str) -> Problem:
        """Parse a row of the benchmark, written as a JSON object."""
        return problem_of_text(text)

    def parse(self, problem: Problem, text: str) -> list[dict[str, Any]] | None:
        """The last plan in the text; None if it has no plan or contradicts itself (see ``plans``)."""
        return read_plan(text).plan

    def render(self, problem: Problem, answer: Answer) -> str:
        return render_plan(answer)

    def vote_key(self, problem: Problem, answer: Answer) -> str:
        """Key of plans with equal entries, ignoring extra spaces, empty attractions and the kind of placeholder."""
        days = [{name: _key_part(name, day[name]) for name in ("day", *PLAN_FIELDS) if name in day} for day in answer]
        return canonical_json(days)

    def fields(self, problem: Problem, answer: Answer) -> dict[str, Any]:
        """Entries of each day, without its number."""
        return _entries(answer)

    def judge(self, problem: Problem, gold: Gold, text: str) -> Judgement:
        """Judge by the violation score: 1 for a text without a plan. A plan without a catalogue is unlabeled."""
        reading = read_plan(text)
        if reading.plan is None:
            return judgement(False, reading.reason, violation_score=violation_score(UNPARSED), parts=dict(UNPARSED))
        catalogue = _catalogue_for(problem.data, database_folder())
        if catalogue is None:
            return unlabeled(f"no reference information in the problem and no database; set {VARIABLE} to its folder")
        findings = dimension_findings(view_of(trip_of(problem.data), reading.plan, catalogue))
        values = dimension_values(findings)
        return judgement(
            not any(findings.values()),
            _reason(findings),
            violation_score=violation_score(values),
            parts=values,
            fields=_field_verdicts(reading.plan, findings),
        )


def _catalogue_for(data: Mapping[str, Any], database: str | None) -> Catalogue | None:
    """Catalogue of the problem's reference information, else of the database in this folder, else None."""
    if "reference" in data:
        return _catalogue_from(data["reference"])
    return None if database is None else read_database(database)


_catalogue_from = lru_cache(maxsize=512)(catalogue_from)
"""Cached, because many plans answer the same problem."""


def _check(dimension: Dimension) -> Callable[[Problem, Any], Iterable[Finding]]:
    def check(problem: Problem, answer: Any) -> Iterable[Finding]:
        return dimension(_view(canonical_json(dict(problem.data)), canonical_json(answer), database_folder()))

    return check


@lru_cache(maxsize=32)
def _view(data: str, answer: str, database: str | None) -> PlanView:
    """Parsed plan with its catalogue. Cached, because five constraints check the same answer."""
    fields = json.loads(data)
    return view_of(trip_of(fields), json.loads(answer), _catalogue_for(fields, database), purpose="constraint")


TravelPlanner.constraints = tuple(
    Constraint(name=name, check=_check(dimension), weight=WEIGHT) for name, dimension in CONSTRAINED.items()
)


def _entries(plan: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    entries = leaves(plan, {KEY: "day"})
    return {path: _key_part("attraction", value) for path, value in entries.items() if not path.endswith(".day")}


def _field_verdicts(plan: Sequence[Mapping[str, Any]], findings: Mapping[str, Sequence[Finding]]) -> dict[str, bool]:
    """Verdict per entry: wrong if a finding names its path."""
    named = {finding.values.get("path") for of_dimension in findings.values() for finding in of_dimension}
    return {path: path not in named for path in _entries(plan)}


def _reason(findings: Mapping[str, Sequence[Finding]]) -> str:
    sentences = [
        f"{name}: {(finding.message or '').format_map(finding.values)}"
        for name, of_dimension in findings.items()
        for finding in of_dimension
    ]
    rest = len(sentences) - _MAX_REASONS
    return "; ".join([*sentences[:_MAX_REASONS], *([f"and {rest} more"] if rest > 0 else [])])


def _key_part(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    parts = value.split(";") if name == "attraction" else [value]
    places = [" ".join(part.split()) for part in parts if part.strip().lower() not in NOTHING]
    return ";".join(places)
