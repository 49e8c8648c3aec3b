"""Find the itinerary in a completion and bring it into canonical form, with notes of all repairs.

In:   any text.
Out:  a PlanReading: the plan (a list of day objects) or the reason why there is none, and every repair.
Does not know: problems, catalogues, gold.

Canonical: ``[{"day": 1, "current_city": "...", "transportation": "...", ...}, ...]``, days in ascending order, fields
in the order of ``PLAN_FIELDS``, values as written without surrounding blanks. Missing fields stay missing. A text that
contradicts itself (a day twice, a field twice, unreadable day numbers) has no plan.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raydebm.tasks.travelplanner.loose_json import Conflict, LooseValue, values_in
from raydebm.tasks.travelplanner.trip import PLAN_FIELDS

PlanDay = dict[str, Any]

_THINKING_END = "</think>"
_ALIASES = {"days": "day", "day_number": "day", "attractions": "attraction", "city": "current_city"}
_USUAL = frozenset({"days"})
"""Aliases of the benchmark itself, which need no repair."""
_DAY_NUMBER = re.compile(r"\s*(?:day\s*)?(\d{1,3})\s*", re.IGNORECASE)
_MAX_DAYS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReading:
    """Parsed text."""

    plan: list[PlanDay] | None
    repairs: tuple[str, ...] = ()
    """Every accepted departure from plain JSON and the requested form."""
    reason: str = ""
    """Reason why there is no plan."""


class _UnreadableError(Exception):
    """A list of day objects that contradicts itself."""


def read_plan(text: str) -> PlanReading:
    """The last plan in a text, because a model that corrects itself writes the better plan later.

    Several different plans are noted as a repair. Text before ``</think>`` is ignored.
    """
    answer = text.rpartition(_THINKING_END)[2]
    plans = [(candidate, days) for candidate, days in _candidates(answer) if days]
    if not plans:
        return PlanReading(plan=None, reason="no JSON list of day objects in the text")
    candidate, days = plans[-1]
    repairs = list(candidate.repairs)
    others = sum(other != days for _, other in plans[:-1])
    if others:
        repairs.append(f"{others + 1} plans in the text, the last one counts")
    try:
        plan = _canonical(days, repairs)
    except _UnreadableError as error:
        return PlanReading(plan=None, repairs=tuple(repairs), reason=str(error))
    return PlanReading(plan=plan, repairs=tuple(dict.fromkeys(repairs)))


def canonical_plan(days: Sequence[Mapping[str, Any]]) -> PlanReading:
    """Canonical form of a plan that is already data, such as a recorded one."""
    repairs: list[str] = []
    objects = [day for day in days if _is_day(day)]
    if len(objects) != len(days):
        repairs.append(f"{len(days) - len(objects)} list items that are not days")
    if not objects:
        return PlanReading(plan=None, reason="no day objects")
    try:
        return PlanReading(plan=_canonical(objects, repairs), repairs=tuple(dict.fromkeys(repairs)))
    except _UnreadableError as error:
        return PlanReading(plan=None, repairs=tuple(repairs), reason=str(error))


def render_plan(plan: Sequence[PlanDay]) -> str:
    """A JSON list, one day per line."""
    return "[" + ",\n ".join(json.dumps(day, ensure_ascii=False) for day in plan) + "]"


def _candidates(text: str) -> list[tuple[LooseValue, list[Mapping[str, Any]]]]:
    """Possible plans in the text. Separate day objects form one candidate together."""
    plans: list[tuple[LooseValue, list[Mapping[str, Any]]]] = []
    apart: list[tuple[LooseValue, Mapping[str, Any]]] = []
    for json_value in values_in(text):
        if isinstance(json_value.value, dict) and _is_day(json_value.value):
            apart.append((json_value, json_value.value))
            continue
        days, repairs = _days_in(json_value.value)
        if days:
            plans.append(
                (LooseValue(json_value.value, (*json_value.repairs, *repairs), json_value.start, json_value.end), days)
            )
    if apart:
        repairs = [repair for json_value, _ in apart for repair in json_value.repairs]
        note = "day objects without a list around them" if len(apart) > 1 else "a day object without a list around it"
        last = apart[-1][0]
        joined = LooseValue(None, (*repairs, note), last.start, last.end)
        plans.append((joined, [day for _, day in apart]))
        plans.sort(key=lambda plan: plan[0].end)
    return plans


def _days_in(value: Any) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Day objects in a list, in the one list of an object, or under the keys "Day 1", "Day 2", ..."""
    if isinstance(value, list):
        days = [entry for entry in value if _is_day(entry)]
        strangers = len(value) - len(days)
        return days, [f"{strangers} list items that are not days"] if days and strangers else []
    if not isinstance(value, dict):
        return [], []
    lists = {key: entry for key, entry in value.items() if isinstance(entry, list) and any(map(_is_day, entry))}
    if len(lists) == 1:
        key, entry = next(iter(lists.items()))
        days, repairs = _days_in(entry)
        return days, [*repairs, f"the list is under the key {key!r}"]
    by_day = {key: entry for key, entry in value.items() if _DAY_NUMBER.fullmatch(key) and _is_day(entry)}
    if by_day:
        days = [{"day": key, **entry} for key, entry in by_day.items()]
        return days, ["days are under their names"]
    inner = [entry for entry in value.values() if isinstance(entry, dict)]
    if len(inner) == 1 and len(value) == 1:
        days, repairs = _days_in_once(inner[0])
        return days, [*repairs, f"the plan is under the key {next(iter(value))!r}"] if days else []
    return [], []


def _days_in_once(value: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], list[str]]:
    by_day = {key: day for key, day in value.items() if _DAY_NUMBER.fullmatch(key) and _is_day(day)}
    return [{"day": key, **day} for key, day in by_day.items()], ["days are under their names"] if by_day else []


def _is_day(value: Any) -> bool:
    """True for an object with at least two fields of a day."""
    return isinstance(value, dict) and len(_fields_of(value)) >= 2


def _fields_of(day: Mapping[str, Any]) -> set[str]:
    return {name for key in day if (name := _field(key)) in PLAN_FIELDS}


def _field(key: str) -> str:
    name = re.sub(r"[\s-]+", "_", key.strip().lower())
    return _ALIASES.get(name, name)


def _canonical(days: Sequence[Mapping[str, Any]], repairs: list[str]) -> list[PlanDay]:
    if len(days) > _MAX_DAYS:
        raise _UnreadableError(f"{len(days)} days are more than a plan can have ({_MAX_DAYS})")
    renamed = [_renamed(day, repairs) for day in days]
    numbers = _day_numbers(renamed, repairs)
    if sorted(numbers) != numbers:
        repairs.append("days are not in order")
    plan = []
    for number, day in sorted(zip(numbers, renamed, strict=True), key=lambda entry: entry[0]):
        texts = {name: _text(name, day[name], number, repairs) for name in PLAN_FIELDS if name in day}
        plan.append({"day": number, **{name: text for name, text in texts.items() if text is not None}})
    return plan


def _renamed(day: Mapping[str, Any], repairs: list[str]) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for key, value in day.items():
        name = _field(key)
        if name not in PLAN_FIELDS and name != "day":
            continue
        if name != key and key not in _USUAL:
            repairs.append(f"{key!r} read as {name!r}")
        if isinstance(value, Conflict) or (name in renamed and renamed[name] != value):
            raise _UnreadableError(f"the field {name!r} of a day has two values")
        renamed[name] = value
    return renamed


def _day_numbers(days: Iterable[Mapping[str, Any]], repairs: list[str]) -> list[int]:
    readings = [_day_number(day.get("day")) for day in days]
    if not any(readings):
        repairs.append("days without readable numbers, counted in their order")
        return list(range(1, len(readings) + 1))
    numbers = [number for number in readings if number is not None]
    if len(numbers) < len(readings):
        raise _UnreadableError("only some of the days have a readable number")
    if len(set(numbers)) < len(numbers):
        twice = next(number for number in numbers if numbers.count(number) > 1)
        raise _UnreadableError(f"day {twice} is planned more than once")
    return numbers


def _day_number(value: Any) -> int | None:
    """1 to 999, also written as text; None for anything else."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 < value < 1000 else None
    match = _DAY_NUMBER.fullmatch(value) if isinstance(value, str) else None
    return (int(match[1]) or None) if match else None


def _text(name: str, value: Any, number: int, repairs: list[str]) -> str | None:
    """The field as text; None if it is not text, so that it counts as missing."""
    if isinstance(value, str):
        return value.strip()
    if value is None:
        repairs.append(f"day {number}: {name} null read as '-'")
        return "-"
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        if name == "attraction":
            repairs.append(f"day {number}: list of attractions joined")
            return "".join(f"{entry.strip()};" for entry in value) or "-"
        if len(value) <= 1:
            repairs.append(f"day {number}: {name} taken out of a list")
            return value[0].strip() if value else "-"
    repairs.append(f"day {number}: {name} is not text and was left out")
    return None
