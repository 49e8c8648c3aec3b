"""Parse a trip's request, and the itinerary in a completion into its canonical form.

In:   ``Problem.data``; any text.
Out:  a Trip; a PlanReading: the plan (a list of day objects), or the reason why the text has no plan.
Independent of: catalogues, gold.

The canonical form is ``[{"day": 1, "current_city": "...", "transportation": "...", ...}, ...]``, with days in ascending
order, fields in the order of ``PLAN_FIELDS``, and values as written, without surrounding blanks. Missing fields stay
missing. A text that contradicts itself (a day twice, a field twice, unreadable day numbers) has no plan.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PLAN_FIELDS = ("current_city", "transportation", "breakfast", "attraction", "lunch", "dinner", "accommodation")
"""Fields of a day, in their canonical order."""
MEALS = ("breakfast", "lunch", "dinner")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip:
    """Structured fields of a query. None for a preference that is not stated, and for a missing field."""

    org: str | None
    """City of departure."""
    dest: str | None
    """Destination: a city for a trip of up to three days, a state for a longer one."""
    days: int
    visiting_city_number: int | None = None
    people: int = 1
    budget: float | None = None
    """Dollars for everyone together."""
    house_rule: str | None = None
    cuisine: tuple[str, ...] = ()
    room_type: str | None = None
    transportation: str | None = None
    date: tuple[str, ...] = ()
    """One ISO date per day; empty if unknown."""

    @property
    def within_a_state(self) -> bool:
        """True for a trip of more than three days, which visits cities of the state ``dest``."""
        return self.days > 3


def trip_of(data: Mapping[str, Any]) -> Trip:
    """Read the trip from a problem's data."""
    wishes = data.get("local_constraint") or {}
    return Trip(
        org=data.get("org"),
        dest=data.get("dest"),
        days=int(data["days"]),
        visiting_city_number=data.get("visiting_city_number"),
        people=int(data.get("people_number") or 1),
        budget=data.get("budget"),
        house_rule=wishes.get("house rule"),
        cuisine=tuple(wishes.get("cuisine") or ()),
        room_type=wishes.get("room type"),
        transportation=wishes.get("transportation"),
        date=tuple(data.get("date") or ()),
    )


PlanDay = dict[str, Any]

_THINKING_END = "</think>"
_ALIASES = {"days": "day", "day_number": "day", "attractions": "attraction", "city": "current_city"}
_DAY_NUMBER = re.compile(r"\s*(?:day\s*)?(\d{1,3})\s*", re.IGNORECASE)
_MAX_DAYS = 100
_MAX_CHARS, _MAX_STEPS = 400_000, 200_000
"""Limits of the text that is read, and of the work on failed attempts to parse a value, in characters."""
_START = re.compile(r"[\[{]")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReading:
    """Result of parsing a text: a plan, or the reason why it has no plan."""

    plan: list[PlanDay] | None
    reason: str = ""


class _UnreadableError(Exception):
    """Day objects that contradict each other, or are too many."""


def read_plan(text: str) -> PlanReading:
    """The last plan in a text, because a model that corrects itself writes the better plan later.

    Text before ``</think>`` is ignored.
    """
    days = _days_of_last_plan(text.rpartition(_THINKING_END)[2])
    return _reading(days) if days else PlanReading(plan=None, reason="no JSON list of day objects in the text")


def canonical_plan(days: Sequence[Mapping[str, Any]]) -> PlanReading:
    """Canonical form of a plan that is given as data, such as a recorded one."""
    objects = list(filter(_is_day, days))
    return _reading(objects) if objects else PlanReading(plan=None, reason="no day objects")


def _reading(days: Sequence[Mapping[str, Any]]) -> PlanReading:
    try:
        return PlanReading(plan=_canonical(days))
    except _UnreadableError as error:
        return PlanReading(plan=None, reason=str(error))


def render_plan(plan: Sequence[PlanDay]) -> str:
    """A JSON list, one day per line."""
    return "[" + ",\n ".join(json.dumps(day, ensure_ascii=False) for day in plan) + "]"


def _days_of_last_plan(text: str) -> list[Mapping[str, Any]]:
    """Day objects of the last plan. Those outside of a list form one plan, which ends with the last of them."""
    plans: list[tuple[int, list[Mapping[str, Any]]]] = []
    apart: list[Mapping[str, Any]] = []
    end_apart = 0
    for value, end in _values_in(text[:_MAX_CHARS]):
        if _is_day(value):
            apart.append(value)
            end_apart = end
        elif days := _days_in(value):
            plans.append((end, days))
    return max([*plans, (end_apart, apart)], key=lambda plan: plan[0])[1]


@dataclass(frozen=True, slots=True)
class _Conflict:
    first: Any
    second: Any


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. A key with two different values keeps both, because neither may win silently."""
    fields: dict[str, Any] = {}
    for key, value in pairs:
        fields[key] = _Conflict(fields[key], value) if key in fields and fields[key] != value else value
    return fields


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, strict=False)  # models write line breaks into strings


def _values_in(text: str) -> Iterator[tuple[Any, int]]:
    """Each outermost list or object of the text, with its end. Invalid and unclosed ones are skipped."""
    position, steps = 0, 0
    while steps < _MAX_STEPS and (match := _START.search(text, position)):
        try:
            value, position = _DECODER.raw_decode(text, match.start())
        except json.JSONDecodeError as error:
            position = match.start() + 1
            steps += error.pos - match.start() + 10
        except (ValueError, RecursionError):  # a number of thousands of digits; brackets of thousands of levels
            position = match.start() + 1
            steps += 1000
        else:
            yield value, position


def _days_in(value: Any) -> list[Mapping[str, Any]]:
    """Day objects in a list, in the only list of days of an object, or under an object's keys "Day 1", "Day 2", ...,
    even if that object is the only value of another one."""
    if isinstance(value, list):
        return list(filter(_is_day, value))
    if not isinstance(value, dict):
        return []
    lists = [entry for entry in value.values() if isinstance(entry, list) and any(map(_is_day, entry))]
    if len(lists) == 1:
        return list(filter(_is_day, lists[0]))
    inner = next(iter(value.values())) if len(value) == 1 else None
    return _days_by_name(value) or (_days_by_name(inner) if isinstance(inner, dict) else [])


def _days_by_name(value: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    by_day = {key: day for key, day in value.items() if _DAY_NUMBER.fullmatch(key) and _is_day(day)}
    return [{"day": key, **day} for key, day in by_day.items()]


def _is_day(value: Any) -> bool:
    """True for an object with at least two fields of a day."""
    return isinstance(value, dict) and len(set(PLAN_FIELDS).intersection(map(_field, value))) >= 2


def _field(key: str) -> str:
    name = re.sub(r"[\s-]+", "_", key.strip().lower())
    return _ALIASES.get(name, name)


def _canonical(days: Sequence[Mapping[str, Any]]) -> list[PlanDay]:
    if len(days) > _MAX_DAYS:
        raise _UnreadableError(f"{len(days)} days are more than a plan can have ({_MAX_DAYS})")
    renamed = [_renamed(day) for day in days]
    plan = []
    for number, day in sorted(zip(_day_numbers(renamed), renamed, strict=True), key=lambda entry: entry[0]):
        texts = {name: _text(name, day[name]) for name in PLAN_FIELDS if name in day}
        plan.append({"day": number, **{name: text for name, text in texts.items() if text is not None}})
    return plan


def _renamed(day: Mapping[str, Any]) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for key, value in day.items():
        name = _field(key)
        if name not in PLAN_FIELDS and name != "day":
            continue
        if isinstance(value, _Conflict) or (name in renamed and renamed[name] != value):
            raise _UnreadableError(f"the field {name!r} of a day has two values")
        renamed[name] = value
    return renamed


def _day_numbers(days: Iterable[Mapping[str, Any]]) -> list[int]:
    """Number of each day; its position if no day has a number."""
    readings = [_day_number(day.get("day")) for day in days]
    if not any(readings):
        return list(range(1, len(readings) + 1))
    numbers = [number for number in readings if number is not None]
    if len(numbers) < len(readings):
        raise _UnreadableError("only some of the days have a readable number")
    if len(set(numbers)) < len(numbers):
        twice = next(number for number in numbers if numbers.count(number) > 1)
        raise _UnreadableError(f"day {twice} is planned more than once")
    return numbers


def _day_number(value: Any) -> int | None:
    """Number from 1 to 999, which may be written as text; None for any other value."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 < value < 1000 else None
    match = _DAY_NUMBER.fullmatch(value) if isinstance(value, str) else None
    return (int(match[1]) or None) if match else None


def _text(name: str, value: Any) -> str | None:
    """Text of a field, which may be in a list; "-" if empty; None for any other value, which counts as missing."""
    if isinstance(value, str):
        return value.strip()
    if value is None or value == []:
        return "-"
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        if name == "attraction":
            return "".join(f"{entry.strip()};" for entry in value)
        if len(value) == 1:
            return str(value[0]).strip()
    return None
