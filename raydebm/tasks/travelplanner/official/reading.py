"""How the benchmark's evaluator reads the texts of a plan. Its quirks are kept, because its verdicts depend on them.

In:   the string in a field of a day.
Out:  names, cities, means of transport.
Does not know: catalogues, verdicts.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

Day = Mapping[str, Any]
Plan = Sequence[Day]
Transport = Literal["Taxi", "Self-driving", "Flight"]

EMPTY = ("", "-")
NO_PLACE = ("-", "-")
"""What a text without a name and a city is read as."""

_MAX_CHARS = 2000
"""A longer field is read as far as this: no name is so long, and the time stays linear in practice."""
_FROM_TO = re.compile(r"from\s+(.+?)\s+to\s+([^,]+)(?=[,\s]|$)")
_NAME_CITY = re.compile(r"(.*?),\s*([^,]+)(\(\w[\w\s]*\))?$")
_BEFORE_PARENTHESIS = re.compile(r"^(.*?)\([^)]*\)")


def text_of(day: Day, name: str) -> str:
    """The field's text, at most so long; empty when the field is missing or no text."""
    value = day.get(name)
    return value[:_MAX_CHARS] if isinstance(value, str) else ""


def filled(day: Day, name: str) -> bool:
    """Whether the field holds anything; ``"-"`` means nothing."""
    return text_of(day, name) not in EMPTY


def before_parenthesis(text: str) -> str:
    """``"Rockford(Illinois)"`` is Rockford."""
    match = _BEFORE_PARENTHESIS.search(text)
    return match[1] if match else text


def name_and_city(text: str) -> tuple[str, str]:
    """``"Coco Bambu, Rockford"`` in two; a text without a comma gives ``NO_PLACE``, which exists nowhere."""
    match = _NAME_CITY.search(text)
    if match is None:
        return NO_PLACE
    return match[1].strip(), before_parenthesis(match[2].strip()).strip()


def from_to(text: str) -> tuple[str, str] | None:
    """The cities of ``"from A to B, ..."``, without what stands in parentheses; None when there is no such phrase."""
    match = _FROM_TO.search(text)
    return (before_parenthesis(match[1]), before_parenthesis(match[2])) if match else None


def cities_of_day(day: Day) -> tuple[str, ...] | None:
    """Both cities of a travel day, the one city of another; None when "from" stands there without "to"."""
    text = text_of(day, "current_city")
    return from_to(text) if "from" in text else (before_parenthesis(text),)


def transport_of(text: str) -> Transport | None:
    lowered = text.lower()
    if "taxi" in lowered:
        return "Taxi"
    if "self-driving" in lowered:
        return "Self-driving"
    return "Flight" if "flight" in lowered else None


def flight_number(text: str) -> str | None:
    """What stands after ``"Flight Number: "`` up to a comma, exactly so written."""
    _, mark, rest = text.partition("Flight Number: ")
    return rest.split(",", 1)[0] if mark else None


def seen_attractions(day: Day) -> list[str]:
    """Each attraction that is closed by a semicolon. What follows the last semicolon is never looked at."""
    return text_of(day, "attraction").split(";")[:-1]


def counted_days(plan: Plan, days: int) -> Plan:
    """The part of the plan that is looked at."""
    return plan[: max(days, 0)]
