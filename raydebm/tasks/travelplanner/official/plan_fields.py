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
"""A longer field is read as far as this: no name is so long."""
_FROM_TO = re.compile(r"from\s+(.+?)\s+to\s+([^,]+)(?=[,\s]|$)")
_LONG_RUN = re.compile(r"([^\S\n]{3})[^\S\n]+")
_MAX_PHRASE = 200
"""In a longer text, blanks count as three at most: the pattern of the phrase tries every division of them."""


def text_of(day: Day, name: str) -> str:
    """The field's text, at most so long; empty when the field is missing or no text."""
    value = day.get(name)
    return value[:_MAX_CHARS] if isinstance(value, str) else ""


def filled(day: Day, name: str) -> bool:
    """Whether the field holds anything; ``"-"`` means nothing."""
    return text_of(day, name) not in EMPTY


def before_parenthesis(text: str) -> str:
    """``"Rockford(Illinois)"`` is Rockford. One that is not closed, or on a later line, is part of the name."""
    name, opened, rest = text.partition("(")
    return name if opened and ")" in rest and "\n" not in name else text


def name_and_city(text: str) -> tuple[str, str]:
    """``"Coco Bambu, Rockford"`` in two; a text without a comma gives ``NO_PLACE``, which exists nowhere.

    The last comma divides, and the name is what stands before it on its line.
    """
    before, comma, city = text.rpartition(",")
    if not (comma and city):
        return NO_PLACE
    return before.rpartition("\n")[2].strip(), before_parenthesis(city.strip()).strip()


def from_to(text: str) -> tuple[str, str] | None:
    """The cities of ``"from A to B, ..."``, without what stands in parentheses; None when there is no such phrase."""
    match = _FROM_TO.search(text if len(text) <= _MAX_PHRASE else _LONG_RUN.sub(r"\1", text))
    return (before_parenthesis(match[1]), before_parenthesis(match[2])) if match else None


def cities_of_day(day: Day) -> tuple[str, ...] | None:
    """Both cities of a travel day, the one city of another; None when "from" stands there without "to"."""
    text = text_of(day, "current_city")
    return from_to(text) if "from" in text else (before_parenthesis(text),)


def transport_of(text: str) -> Transport | None:
    """The means of transport that a text names, taxis before own cars before flights; None without one."""
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
