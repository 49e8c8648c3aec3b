"""The evaluator's eight commonsense constraints, as pure functions of a trip, a plan and the sandbox.

In:   Trip, the plan's day objects, Catalogue.
Out:  Finding-like results: a verdict and the reason for a failure.
Does not know: problems, files. Nothing is evaluated as code; all look-ups are by string.

The plan has at least one day: what has none was not delivered, and is not checked.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from raydebm.tasks.travelplanner.catalogue import Catalogue, Mode
from raydebm.tasks.travelplanner.official.plan_fields import (
    EMPTY,
    Day,
    Plan,
    cities_of_day,
    counted_days,
    filled,
    flight_number,
    from_to,
    name_and_city,
    seen_attractions,
    text_of,
    transport_of,
)
from raydebm.tasks.travelplanner.trip import MEALS, Trip


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """What one constraint says about a plan."""

    verdict: bool | None
    """None: the query does not ask for it."""
    reason: str = ""
    """Why it does not hold."""


HOLDS = RuleOutcome(True)

Rule = Callable[[Trip, Plan, Catalogue], RuleOutcome]

_SKIPPED_DAY = "You don't need to fill in the information for this or later days."
_REQUIRED = ("transportation", "breakfast", "lunch", "dinner", "attraction", "accommodation")


def broken(reason: str) -> RuleOutcome:
    """A broken constraint, with the reason."""
    return RuleOutcome(False, reason)


def reasonable_visiting_city(trip: Trip, plan: Plan, catalogue: Catalogue) -> RuleOutcome:
    """Starts at the origin, closes the circle, stays in one block a city, and keeps to known cities of the state."""
    route: list[str] = []
    for number, day in numbered(trip, plan):
        cities = cities_of_day(day)
        if cities is None:
            return broken(f"day {number}: current_city names no two cities: {text_of(day, 'current_city')!r}")
        if number == 1 and len(cities) == 2 and cities[0] != trip.org:
            return broken(f"the first day must start at {trip.org}, not {cities[0]}")
        route += cities
    if not route or route[0] != route[-1]:
        return broken("the trip must end where it starts")
    if not _is_valid_sequence(route):
        return broken(f"the order of cities is not reasonable: {' > '.join(route)}")
    for index, city in enumerate(route):
        if city not in catalogue.states:
            return broken(f"{city} is not a known city")
        inside = 0 < index < len(route) - 1
        if inside and trip.within_a_state and catalogue.states[city] != trip.dest:
            return broken(f"{city} is not in {trip.dest}")
    return HOLDS


def _is_valid_sequence(route: list[str]) -> bool:
    """At least three entries, each city in one block, and no block of one entry but at the two ends."""
    if len(route) < 3:
        return False
    visited: set[str] = set()
    index = 0
    while index < len(route):
        city, start = route[index], index
        if city in visited and start not in (0, len(route) - 1):
            return False
        while index < len(route) and route[index] == city:
            index += 1
        if index - start == 1 and 0 < start < len(route) - 1:
            return False
        visited.add(city)
    return True


def valid_restaurants(trip: Trip, plan: Plan, catalogue: Catalogue) -> RuleOutcome:
    """No meal is written twice."""
    seen: set[str] = set()
    for number, day in numbered(trip, plan):
        for meal in MEALS:
            if filled(day, meal):
                written = text_of(day, meal)
                if written in seen:
                    return broken(f"day {number}: {meal} repeats {written}")
                seen.add(written)
    return HOLDS


def valid_attractions(trip: Trip, plan: Plan, catalogue: Catalogue) -> RuleOutcome:
    """No attraction is written twice."""
    seen: set[str] = set()
    for number, day in numbered(trip, plan):
        for written in _attractions(day):
            if written in seen:
                return broken(f"day {number}: attraction repeats {written}")
            seen.add(written)
    return HOLDS


def valid_accommodation(trip: Trip, plan: Plan, catalogue: Catalogue) -> RuleOutcome:
    """Every run of nights in one accommodation, where its name is unambiguous, is as long as it demands."""
    days = list(numbered(trip, plan))
    for number, day in days:
        if "accommodation" not in day:
            return broken(f"day {number}: no accommodation field")
    for written, run in groupby(text_of(day, "accommodation") for _, day in days):
        if written in EMPTY:
            continue
        nights = len(list(run))
        stays = catalogue.stays.matches(*name_and_city(written))
        if len(stays) == 1 and nights < stays[0].minimum_nights:
            return broken(f"{written}: {nights} night(s), but at least {stays[0].minimum_nights:g} are demanded")
    return HOLDS


def valid_transportation(trip: Trip, plan: Plan, catalogue: Catalogue) -> RuleOutcome:
    """The first day has a transport, and self-driving goes with neither flights nor taxis."""
    if not filled(plan[0], "transportation"):
        return broken("day 1: transportation is empty")
    used = {transport_of(text_of(day, "transportation")) for _, day in numbered(trip, plan)}
    for other in ("Flight", "Taxi"):
        if {"Self-driving", other} <= used:
            return broken(f"Self-driving and {other} in one trip")
    return HOLDS


def information_in_current_city(trip: Trip, plan: Plan, catalogue: Catalogue) -> RuleOutcome:
    """Whatever a day names lies in the cities of that day, by the text alone.

    The authors' program goes through the letters of the city, where the day has only one: a meal or attraction then
    has to share one letter with the city, an accommodation its last letter, a transport all of them. Kept, because
    7 % of the recorded verdicts rest on it.
    """
    for number, day in numbered(trip, plan):
        cities = cities_of_day(day)
        if cities is None:
            return broken(f"day {number}: current_city names no two cities: {text_of(day, 'current_city')!r}")
        misplaced = _misplaced(day, cities if len(cities) == 2 else tuple(cities[0]))
        if misplaced is not None:
            return broken(f"day {number}: {misplaced} is not in {' or '.join(cities)}")
    return HOLDS


def _misplaced(day: Day, cities: Sequence[str]) -> str | None:
    if filled(day, "transportation") and not all(city in text_of(day, "transportation") for city in cities):
        return f"transportation {text_of(day, 'transportation')}"
    for meal in MEALS:
        if filled(day, meal) and not any(city in text_of(day, meal) for city in cities):
            return f"{meal} {text_of(day, meal)}"
    for written in _attractions(day):
        if not any(city in written for city in cities):
            return f"attraction {written}"
    if filled(day, "accommodation") and (not cities or cities[-1] not in text_of(day, "accommodation")):
        return f"accommodation {text_of(day, 'accommodation')}"
    return None


def information_in_sandbox(trip: Trip, plan: Plan, catalogue: Catalogue) -> RuleOutcome:
    """Whatever is named exists: flights by number and cities on any date, drives with a cost, places in their city."""
    for number, day in numbered(trip, plan):
        unknown = _unknown(day, catalogue)
        if unknown is not None:
            return broken(f"day {number}: {unknown} is not in the sandbox")
    return HOLDS


def _unknown(day: Day, catalogue: Catalogue) -> str | None:
    if filled(day, "transportation") and not _transport_exists(day, catalogue):
        return f"transportation {text_of(day, 'transportation')}"
    for meal in MEALS:
        if filled(day, meal) and catalogue.restaurants.first(*name_and_city(text_of(day, meal))) is None:
            return f"{meal} {text_of(day, meal)}"
    for written in _attractions(day):
        if catalogue.attractions.first(*name_and_city(written)) is None:
            return f"attraction {written}"
    stay = text_of(day, "accommodation")
    if filled(day, "accommodation") and catalogue.stays.first(*name_and_city(stay)) is None:
        return f"accommodation {stay}"
    return None


def _transport_exists(day: Day, catalogue: Catalogue) -> bool:
    """True also for what names neither a flight number nor a drive, such as a train."""
    text = text_of(day, "transportation")
    lowered = text.lower()
    mode: Mode | None = "self-driving" if "self-driving" in lowered else "taxi" if "taxi" in lowered else None
    if "flight number" not in lowered and mode is None:
        return True
    cities = leg_of(day)
    if cities is None:
        return False
    if "flight number" in lowered:
        number = flight_number(text)
        return number is not None and catalogue.flight(number, *cities) is not None
    return mode is not None and catalogue.drive_cost(mode, *cities) is not None


def leg_of(day: Day) -> tuple[str, str] | None:
    """The two cities of the transportation text, else those of current_city."""
    return from_to(text_of(day, "transportation")) or from_to(text_of(day, "current_city"))


def not_absent(trip: Trip, plan: Plan, catalogue: Catalogue) -> RuleOutcome:
    """Enough days, the asked number of cities, no missing field, and at least half of all cells filled."""
    days = list(numbered(trip, plan))
    written = [day for _, day in days if day and day.get("current_city") != _SKIPPED_DAY]
    if len(written) != trip.days:
        return broken(f"{len(written)} of {trip.days} days are filled in")
    cities = _visited(trip, plan)
    if isinstance(cities, RuleOutcome):
        return cities
    if len(cities) != trip.visiting_city_number:
        return broken(f"{len(cities)} cities are visited, not {trip.visiting_city_number}")
    cells = 0
    for number, day in days:
        lack = _lack(day, is_last=number == trip.days)
        if lack is not None:
            return broken(f"day {number}: {lack}")
        cells += sum(1 for value in day.values() if value and value != "-")
    if cells / (6 * trip.days) < 0.5:
        return broken(f"only {cells} cells are filled in, less than half of {6 * trip.days}")
    return HOLDS


def _visited(trip: Trip, plan: Plan) -> set[str] | RuleOutcome:
    cities: set[str] = set()
    for number, day in numbered(trip, plan):
        day_cities = cities_of_day(day)
        if day_cities is None:
            return broken(f"day {number}: current_city names no two cities: {text_of(day, 'current_city')!r}")
        if number == 1 and len(day_cities) == 2 and day_cities[0] != trip.org:
            return broken(f"the first day must start at {trip.org}, not {day_cities[0]}")
        cities.update(day_cities)
    return cities - {str(trip.org)}


def _lack(day: Day, *, is_last: bool) -> str | None:
    missing = next((name for name in _REQUIRED if name not in day), None)
    if missing is not None:
        return f"no {missing} field"
    where = text_of(day, "current_city")
    if ("from " in where or "to " in where) and not filled(day, "transportation"):
        return "no transportation on a travel day"
    if "from " not in where and " to " not in where and not filled(day, "attraction"):
        return "no attraction"
    if not is_last and not filled(day, "accommodation"):
        return "no accommodation"
    if "from " not in where and not all(filled(day, meal) for meal in MEALS):
        return "a meal is missing"
    return None


COMMONSENSE: Mapping[str, Rule] = {
    "is_reasonable_visiting_city": reasonable_visiting_city,
    "is_valid_restaurants": valid_restaurants,
    "is_valid_attractions": valid_attractions,
    "is_valid_accommodation": valid_accommodation,
    "is_valid_transportation": valid_transportation,
    "is_valid_information_in_current_city": information_in_current_city,
    "is_valid_information_in_sandbox": information_in_sandbox,
    "is_not_absent": not_absent,
}
"""By the evaluator's names, in its order."""


def numbered(trip: Trip, plan: Plan) -> Iterator[tuple[int, Day]]:
    """(day, from 1, and its object) of the part that is looked at."""
    return enumerate(counted_days(plan, trip.days), start=1)


def _attractions(day: Day) -> list[str]:
    return seen_attractions(day) if filled(day, "attraction") else []
