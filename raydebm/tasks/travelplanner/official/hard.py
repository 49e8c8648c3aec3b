"""The evaluator's five hard constraints, as pure functions of a trip, a plan and the sandbox.

In:   Trip, the plan's day objects, Catalogue.
Out:  Outcome; its verdict is None when the query does not ask for the constraint.
Does not know: problems, files.

They presuppose that everything named exists: what is not found costs nothing and breaks no rule by itself.
"""

import math
from collections.abc import Iterator, Mapping

from raydebm.tasks.travelplanner.catalogue import SEATS, Catalogue, Mode, Restaurant, Stay
from raydebm.tasks.travelplanner.official.commonsense import HOLDS, Rule, RuleOutcome, broken, leg_of, numbered
from raydebm.tasks.travelplanner.official.plan_fields import Day, Plan, filled, flight_number, name_and_city, text_of
from raydebm.tasks.travelplanner.trip import MEALS, Trip

NOT_ASKED = RuleOutcome(None)


def valid_cost(trip: Trip, plan: Plan, catalogue: Catalogue) -> RuleOutcome:
    """The whole trip costs at most the budget."""
    if trip.budget is None:
        return NOT_ASKED
    cost = total_cost(trip, plan, catalogue)
    return HOLDS if cost <= trip.budget else broken(f"the trip costs ${cost:,.0f} of ${trip.budget:,.0f}")


def total_cost(trip: Trip, plan: Plan, catalogue: Catalogue) -> float:
    """Dollars for everyone. What the sandbox does not have costs nothing."""
    total = 0.0
    for _, day in numbered(trip, plan):
        total += _transport_cost(day, trip.people, catalogue)
        total += sum(place.cost * trip.people for meal in MEALS if (place := _restaurant(day, meal, catalogue)))
        stay = _stay(day, catalogue)
        if stay is not None:
            total += stay.price * stay.units(trip.people)
    return total


def _transport_cost(day: Day, people: int, catalogue: Catalogue) -> float:
    text = text_of(day, "transportation")
    lowered = text.lower()
    cities = leg_of(day)
    if not filled(day, "transportation") or cities is None:
        return 0.0
    if "flight number" in lowered:
        rows = catalogue.flights.get(flight_number(text) or "", ())
        return rows[0].price * people if rows else 0.0
    mode: Mode | None = "self-driving" if "self-driving" in lowered else "taxi" if "taxi" in lowered else None
    cost = None if mode is None else catalogue.drive_cost(mode, *cities)
    return 0.0 if mode is None or cost is None else cost * math.ceil(people / SEATS[mode])


def valid_room_rule(trip: Trip, plan: Plan, catalogue: Catalogue) -> RuleOutcome:
    """No accommodation forbids what was asked for."""
    if trip.house_rule is None:
        return NOT_ASKED
    for number, stay in _stays(trip, plan, catalogue):
        if f"No {trip.house_rule}" in stay.house_rules:
            return broken(f"day {number}: {stay.name} says {stay.house_rules}")
    return HOLDS


def valid_cuisine(trip: Trip, plan: Plan, catalogue: Catalogue) -> RuleOutcome:
    """Every cuisine that was asked for is had at least once.

    As in the authors' program, a meal at the origin ends the day: what is eaten later that day does not count.
    """
    if not trip.cuisine:
        return NOT_ASKED
    had: set[str] = set()
    for _, day in numbered(trip, plan):
        for meal in MEALS:
            if filled(day, meal) and name_and_city(text_of(day, meal))[1] == trip.org:
                break
            place = _restaurant(day, meal, catalogue)
            had.update(() if place is None else place.cuisines)
    missing = [cuisine for cuisine in trip.cuisine if cuisine not in had]
    return broken(f"no {', '.join(missing)} meal") if missing else HOLDS


def valid_room_type(trip: Trip, plan: Plan, catalogue: Catalogue) -> RuleOutcome:
    """Every accommodation is of the type that was asked for."""
    if trip.room_type is None:
        return NOT_ASKED
    for number, stay in _stays(trip, plan, catalogue):
        if not fits_room_type(stay, trip.room_type):
            return broken(f"day {number}: {stay.name} is a {stay.room_type}")
    return HOLDS


def fits_room_type(stay: Stay, wanted: str) -> bool:
    """Whether an accommodation is of a type in the query's words."""
    if wanted == "not shared room":
        return stay.room_type != "Shared room"
    types = {"shared room": "Shared room", "private room": "Private room", "entire room": "Entire home/apt"}
    return wanted not in types or stay.room_type == types[wanted]


def valid_transportation_rule(trip: Trip, plan: Plan, catalogue: Catalogue) -> RuleOutcome:
    """No transport that was ruled out."""
    word = {"no flight": "Flight", "no self-driving": "Self-driving"}.get(trip.transportation or "")
    if word is None:
        return NOT_ASKED
    for number, day in numbered(trip, plan):
        if word in text_of(day, "transportation"):
            return broken(f"day {number}: {text_of(day, 'transportation')}")
    return HOLDS


HARD: Mapping[str, Rule] = {
    "valid_cuisine": valid_cuisine,
    "valid_room_rule": valid_room_rule,
    "valid_transportation": valid_transportation_rule,
    "valid_room_type": valid_room_type,
    "valid_cost": valid_cost,
}
"""By the evaluator's names, in its order."""


def _restaurant(day: Day, meal: str, catalogue: Catalogue) -> Restaurant | None:
    return catalogue.restaurants.first(*name_and_city(text_of(day, meal))) if filled(day, meal) else None


def _stay(day: Day, catalogue: Catalogue) -> Stay | None:
    return (
        catalogue.stays.first(*name_and_city(text_of(day, "accommodation"))) if filled(day, "accommodation") else None
    )


def _stays(trip: Trip, plan: Plan, catalogue: Catalogue) -> Iterator[tuple[int, Stay]]:
    for number, day in numbered(trip, plan):
        stay = _stay(day, catalogue)
        if stay is not None:
            yield number, stay
