"""Plan as the violation score's ``dimensions`` read it: cities and entities by day, with their catalogue entries.

In:   Trip, canonical plan, Catalogue or None.
Out:  PlanView.
Independent of: scores, problems.

Parsing is more lenient than the benchmark's evaluator where a human reader would be: the last attraction counts without
a semicolon, ``"Tucson, Arizona"`` is Tucson, ``"Flight F3877057"`` is a flight number.

The two purposes differ in how they read a place. A label (purpose "label") follows the benchmark: the city is the text
after the last comma, and a place that is not found costs nothing. E_constraint (purpose "constraint") must not depend
on spelling: it also finds ``"Name, City, State"``, and a place that is not found costs as much as the cheapest of its
city.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from raydebm.tasks.travelplanner.catalogue import (
    SEATS,
    Attraction,
    Catalogue,
    Flight,
    Restaurant,
    Stay,
    on_one_line,
)
from raydebm.tasks.travelplanner.plans import MEALS, Trip

NOTHING = frozenset({"", "-", "\u2013", "\u2014", "none", "n/a", "na", "null", "nothing"})
_FLIGHT = re.compile(r"\bflight(?:\s+(?:number|no\.?|#))?\s*:?\s*([A-Z]{1,3}\d{2,8})\b", re.IGNORECASE)

_MAX_CHARS = 2000
"""Length at which a field is cut: names are shorter."""
_FROM_TO = re.compile(r"from\s+(.+?)\s+to\s+([^,]+)(?=[,\s]|$)")
_LONG_RUN = re.compile(r"([^\S\n]{3})[^\S\n]+")
_MAX_PHRASE = 200
"""Length above which runs of blanks are cut to three: the pattern tries every division of a run."""
NO_PLACE = ("-", "-")
"""(name, city) of a text without a city, which no catalogue has."""

Means = Literal["flight", "self-driving", "taxi"]
Place = Attraction | Restaurant | Stay
Purpose = Literal["label", "constraint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A place that a day names."""

    day: int
    field: str
    name: str
    city: str
    written: str
    place: Place | None
    """Catalogue entry; None if it is not found, or without a catalogue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportEntry:
    day: int
    written: str
    means: Means | None
    cities: tuple[str, str] | None
    number: str | None
    """Flight number."""
    flight: Flight | None
    cost: float | None
    """Dollars for everyone; None if it is not in the catalogue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayView:
    number: int
    present: bool
    """True if the plan has this day."""
    cities: tuple[str, ...]
    """Two on a travel day, one on any other; empty if missing or unreadable."""
    filled: frozenset[str]
    """Names of non-empty fields."""
    transport: TransportEntry | None
    entities: tuple[Entity, ...]

    @property
    def travels(self) -> bool:
        """True if the day's entry has two cities, from and to."""
        return len(self.cities) == 2

    def entity(self, name: str) -> Entity | None:
        return next((entity for entity in self.entities if entity.field == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    trip: Trip
    catalogue: Catalogue | None
    days: tuple[DayView, ...]
    """One per day of the trip, from day 1. Days beyond the trip are left out."""
    num_written: int
    """Number of days in the plan, including those beyond the trip."""
    purpose: Purpose = "label"

    @property
    def entities(self) -> Iterator[Entity]:
        return (entity for day in self.days for entity in day.entities)

    @property
    def route(self) -> list[tuple[int, str]]:
        """(day, city) in order; two for a travel day."""
        return [(day.number, city) for day in self.days for city in day.cities]


def view_of(
    trip: Trip, plan: Sequence[Mapping[str, Any]], catalogue: Catalogue | None, *, purpose: Purpose = "label"
) -> PlanView:
    """Parse every day once."""
    by_number = {day.get("day"): day for day in plan}
    read = partial(_day, trip=trip, catalogue=catalogue, purpose=purpose)
    return PlanView(
        trip=trip,
        catalogue=catalogue,
        days=tuple(read(number, by_number.get(number)) for number in range(1, trip.days + 1)),
        num_written=len(plan),
        purpose=purpose,
    )


def _day(
    number: int, day: Mapping[str, Any] | None, *, trip: Trip, catalogue: Catalogue | None, purpose: Purpose
) -> DayView:
    if day is None:
        return DayView(number=number, present=False, cities=(), filled=frozenset(), transport=None, entities=())
    filled = frozenset(name for name in day if name != "day" and text_of(day, name).strip().lower() not in NOTHING)
    cities = _cities(text_of(day, "current_city")) if "current_city" in filled else ()
    return DayView(
        number=number,
        present=True,
        cities=cities,
        filled=filled,
        transport=_transport(number, text_of(day, "transportation"), cities, trip, catalogue)
        if "transportation" in filled
        else None,
        entities=tuple(
            entity if purpose == "label" else _without_state(entity, catalogue)
            for entity in _entities(number, day, filled, catalogue)
        ),
    )


def _cities(text: str) -> tuple[str, ...]:
    """Cities, without states and parentheses. "from A" without "to B" gives none."""
    if re.match(r"\s*from\b", text, re.IGNORECASE) or " from " in text:
        route = from_to(re.sub(r"^\s*From\b", "from", text))
        return tuple(map(_city, route)) if route else ()
    city = _city(text)
    return (city,) if city else ()


def _city(text: str) -> str:
    return before_parenthesis(text).split(",", 1)[0].strip()


def text_of(day: Mapping[str, Any], name: str) -> str:
    """Text of a field, cut at ``_MAX_CHARS``; empty if the field is missing or not text."""
    value = day.get(name)
    return value[:_MAX_CHARS] if isinstance(value, str) else ""


def before_parenthesis(text: str) -> str:
    """Rockford for ``"Rockford(Illinois)"``. An unclosed parenthesis, or one on a later line, is part of the name."""
    name, opened, rest = text.partition("(")
    return name if opened and ")" in rest and "\n" not in name else text


def name_and_city(text: str) -> tuple[str, str]:
    """Split ``"Coco Bambu, Rockford"`` in two. A text without a comma, or with nothing after it, gives ``NO_PLACE``.

    The last comma separates; the name is the text before it on the same line, as in the benchmark's evaluator.
    """
    before, comma, city = text.rpartition(",")
    if not (comma and city):
        return NO_PLACE
    return before.rpartition("\n")[2].strip(), before_parenthesis(city.strip()).strip()


def from_to(text: str) -> tuple[str, str] | None:
    """Cities of ``"from A to B, ..."``, without parentheses; None for another text."""
    match = _FROM_TO.search(text if len(text) <= _MAX_PHRASE else _LONG_RUN.sub(r"\1", text))
    return (before_parenthesis(match[1]), before_parenthesis(match[2])) if match else None


def _entities(
    number: int, day: Mapping[str, Any], filled: frozenset[str], catalogue: Catalogue | None
) -> Iterator[Entity]:
    for meal in MEALS:
        if meal in filled:
            yield _entity(number, meal, text_of(day, meal), catalogue)
    if "attraction" in filled:
        for written in text_of(day, "attraction").split(";"):
            if written.strip().lower() not in NOTHING:
                yield _entity(number, "attraction", written.strip(), catalogue)
    if "accommodation" in filled:
        yield _entity(number, "accommodation", text_of(day, "accommodation"), catalogue)


def _entity(number: int, field: str, written: str, catalogue: Catalogue | None) -> Entity:
    name, city = name_and_city(written.rstrip(" .;"))
    if city == "-":
        name, city = written.strip(), ""
    place = _place(field, name, city, catalogue)
    return Entity(day=number, field=field, name=on_one_line(name), city=city, written=on_one_line(written), place=place)


def _place(field: str, name: str, city: str, catalogue: Catalogue | None) -> Place | None:
    if catalogue is None or not city:
        return None
    if field == "attraction":
        return catalogue.attractions.named(name, city)
    if field == "accommodation":
        return catalogue.stays.named(name, city)
    return catalogue.restaurants.named(name, city)


def _without_state(entity: Entity, catalogue: Catalogue | None) -> Entity:
    """Entity of ``"Name, City, State"`` without the state, if only "City" is a city of the catalogue."""
    if entity.place is not None or catalogue is None or entity.city in catalogue.cities:
        return entity
    name, comma, city = entity.name.rpartition(",")
    city = before_parenthesis(city).strip()
    if not comma or city not in catalogue.cities:
        return entity
    return replace(entity, name=name.strip(), city=city, place=_place(entity.field, name.strip(), city, catalogue))


def _transport(
    day: int, written: str, cities: tuple[str, ...], trip: Trip, catalogue: Catalogue | None
) -> TransportEntry:
    means = _means(written)
    leg = from_to(written)
    ends = (_city(leg[0]), _city(leg[1])) if leg else (cities[0], cities[1]) if len(cities) == 2 else None
    number = match[1] if means == "flight" and (match := _FLIGHT.search(written)) else None
    flight: Flight | None = None
    cost: float | None = None
    if catalogue is not None and ends is not None:
        if means == "flight":
            flight = catalogue.flight(number, *ends) if number else None
            cost = flight.price * trip.people if flight else None
        elif means is not None and (per_car := catalogue.drive_cost(means, *ends)) is not None:
            cost = per_car * math.ceil(trip.people / SEATS[means])
    return TransportEntry(
        day=day, written=on_one_line(written), means=means, cities=ends, number=number, flight=flight, cost=cost
    )


def _means(written: str) -> Means | None:
    """Means of transport that the text names first."""
    lowered = written.lower()
    mentions = [(match.start(), means) for means, pattern in _MEANS.items() if (match := pattern.search(lowered))]
    return min(mentions)[1] if mentions else None


_MEANS: Mapping[Means, re.Pattern[str]] = {
    "flight": re.compile(r"\bflight\b|\bfly\b"),
    "self-driving": re.compile(r"\bself[\s-]?driv\w*"),
    "taxi": re.compile(r"\btaxi\b"),
}
