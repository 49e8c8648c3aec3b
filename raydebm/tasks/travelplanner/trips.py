"""Problems and gold from rows of the benchmark, divided into splits of the paper's sizes.

In:   hub rows, files, folders; a row as JSON.
Out:  pairs of Problem and Gold.
Independent of: plans other than the annotated one, scores.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from raydebm.errors import TaskDataError
from raydebm.identity import content_id
from raydebm.records import Gold, Problem
from raydebm.tasks.base import required_field
from raydebm.tasks.file_backed import question_of, source_id_of
from raydebm.tasks.sources import (
    Located,
    distinct,
    file_rows,
    hub_name,
    hub_rows,
    json_object,
    local_file,
    record_lookup,
    written_value,
)
from raydebm.tasks.travelplanner.plans import canonical_plan
from raydebm.tasks.travelplanner.trip_reference import prompt_of, read_items

TASK = "travelplanner"
HUB_DATASET = "osunlp/TravelPlanner"
PARTS = ("train", "validation")
"""The benchmark's own splits with annotated plans, which the paper divides differently."""
NUM_TRAIN = 175
"""Number of training problems among the 225; the other 50 are for testing (paper, appendix on data sets)."""

_FIELDS = ("org", "dest", "days", "visiting_city_number", "date", "people_number", "budget", "local_constraint")
_WISHES = ("house rule", "cuisine", "room type", "transportation")
_WHAT_ELSE = "a .jsonl file, a folder with problems_train and problems_validation, or hub:" + HUB_DATASET
MAX_DAYS = 30


def load_problems(split: str, source: str | None) -> Iterator[tuple[Problem, Gold]]:
    """Problems of a split.

    The 225 problems of the hub, or of a folder with both of the benchmark's parts, are ordered by a hash of their
    queries; the first 175 are train, the other 50 test. A single file is not divided, whatever the split.
    """
    on_hub = hub_name(source, HUB_DATASET)
    if on_hub is not None:
        rows = (row for part in PARTS for row in hub_rows(on_hub, part, split=part, otherwise=f"give {_WHAT_ELSE}"))
        return _divided(distinct(_pairs(rows)), split)
    path = Path(str(source))
    parts = [f"problems_{part}.jsonl.gz" for part in PARTS]
    record_lookup(path, parts)
    if all((path / name).is_file() for name in parts):
        return _divided(distinct(_pairs(row for name in parts for row in file_rows(path / name))), split)
    return _pairs(file_rows(local_file(str(source), split, otherwise=_WHAT_ELSE)))


def _divided(pairs: Iterable[tuple[Problem, Gold]], split: str) -> Iterator[tuple[Problem, Gold]]:
    ranked = sorted(pairs, key=lambda pair: content_id(TASK, "split", pair[0].data["query"]))
    yield from ranked[:NUM_TRAIN] if split == "train" else ranked[NUM_TRAIN:]


def _pairs(rows: Iterable[Located]) -> Iterator[tuple[Problem, Gold]]:
    for where, row in rows:
        problem = problem_of_row(row, where)
        plan = _annotated(row.get("annotated_plan"), where)
        yield problem, Gold(task=TASK, problem_id=problem.problem_id, value={"annotated_plan": plan})


def problem_of_row(row: Mapping[str, Any], where: str) -> Problem:
    """Problem of a row with the benchmark's fields. Values may be written as text, as on the hub and in CSV files."""
    query = str(required_field(row, "query", where))
    fields = {name: written_value(required_field(row, name, where)) for name in _FIELDS}
    level, days = str(row.get("level") or ""), _count(fields["days"], "days", where)
    information = row.get("reference_information")
    reference = read_items(information, where=where) if information else None
    data: dict[str, Any] = {
        "query": query.strip(),
        "org": str(fields["org"]),
        "dest": str(fields["dest"]),
        "days": days,
        "visiting_city_number": _count(fields["visiting_city_number"], "visiting_city_number", where),
        "people_number": _count(fields["people_number"], "people_number", where),
        "budget": _amount(fields["budget"], where),
        "date": list(map(str, fields["date"])) if isinstance(fields["date"], list | tuple) else [],
        "local_constraint": _wishes(fields["local_constraint"], where),
        "level": level,
        "source_id": source_id_of(row),
        "reference": None if reference is None else reference.to_json(),
    }
    difficulty = f"{level}, {days} days" if level else f"{days} days"
    return question_of(TASK, prompt_of(query, reference), difficulty=difficulty, **data)


def problem_of_text(text: str) -> Problem:
    """Problem of a row of the benchmark, given as a JSON object."""
    row = json_object(text)
    if row is None:
        raise TaskDataError(
            "a trip cannot be read from plain words; send the benchmark's row as a JSON object, or the problem with "
            "its `data`"
        )
    return problem_of_row(row, "the problem")


def _annotated(value: Any, where: str) -> list[dict[str, Any]] | None:
    """Human plan, or None. On the hub it is a list of two: the query's fields, and the list of days."""
    value = written_value(value)
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], list):
        value = value[1]
    if not value:
        return None
    if not isinstance(value, list):
        raise TaskDataError(f"{where}: annotated_plan must be a list of days, got {type(value).__name__}")
    reading = canonical_plan([day for day in value if day])
    if reading.plan is None:
        raise TaskDataError(f"{where}: annotated_plan cannot be read: {reading.reason}")
    return reading.plan


def _count(value: Any, name: str, where: str) -> int:
    try:
        count = int(value)
    except (TypeError, ValueError) as error:
        raise TaskDataError(f"{where}: {name} must be a whole number, got {value!r}") from error
    if not 0 < count <= (MAX_DAYS if name == "days" else 1000):
        raise TaskDataError(f"{where}: {name} {count} is out of range")
    return count


def _amount(value: Any, where: str) -> int | float:
    try:
        amount = float(value)
    except (TypeError, ValueError) as error:
        raise TaskDataError(f"{where}: budget must be a number of dollars, got {value!r}") from error
    if not 0 < amount < 1e9:
        raise TaskDataError(f"{where}: budget {value!r} is out of range")
    return int(amount) if amount.is_integer() else amount


def _wishes(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TaskDataError(f"{where}: local_constraint must be an object, got {value!r}")
    wishes = {name: written_value(value.get(name)) or None for name in _WISHES}
    if isinstance(wishes["cuisine"], str):
        wishes["cuisine"] = [wishes["cuisine"]]
    if wishes["cuisine"] is not None:
        wishes["cuisine"] = [str(name) for name in wishes["cuisine"]]
    return wishes
