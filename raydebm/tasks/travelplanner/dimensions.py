"""The eight dimensions of the violation score (paper, appendix on TravelPlanner), each in [0, 1]; 0 is best.

In:   PlanView.
Out:  findings: the violations of a dimension, each with a message; their penalties add up to its value.
Independent of: gold, files, scores of other plans.

- budget: excess / budget, at most 1
- connectivity: share of moves between cities without an existing transport
- completeness: share of required fields that are missing
- preferences: share of the stated preferences that the plan violates
- diversity: share of meals and attractions that repeat an earlier one
- hallucination: share of named places that are not in the reference information (or database)
- structure: share of seven conditions of a reasonable trip that are broken
- parse: 1 without a plan

The first five are also the terms of E_constraint, which reads places differently than a label does (``view``).
Budget, hallucination, and parts of connectivity, preferences and structure need a catalogue; without one they find
nothing.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby

from raydebm.tasks.constraints import Finding
from raydebm.tasks.travelplanner.catalogue import Restaurant, Stay
from raydebm.tasks.travelplanner.plans import MEALS
from raydebm.tasks.travelplanner.view import DayView, Entity, PlanView, TransportEntry

Dimension = Callable[[PlanView], Iterable[Finding]]

MAX_QUOTED = 80
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d")


def _finding(penalty: float, message: str, entry: Entity | TransportEntry | None = None, **values: object) -> Finding:
    """A finding. With an entry, the message may use its ``{day}``, ``{field}`` and ``{place}``, which quotes it."""
    if isinstance(entry, Entity):
        values = {"day": entry.day, "field": entry.field, "place": _quoted(entry.written)} | values
    elif entry is not None:
        values = {"day": entry.day, "field": "transportation", "place": _quoted(entry.written)} | values
    if {"day", "field"} <= values.keys():
        values["path"] = f"[day={values['day']}].{values['field']}"
    return Finding(penalty=penalty, values=values, message=message)


def budget(view: PlanView) -> Iterator[Finding]:
    """Excess of the trip's cost over the budget."""
    limit = view.trip.budget
    if view.catalogue is None or not limit or limit <= 0:
        return
    costs = costs_of(view)
    total = sum(costs.values())
    if total > limit:
        most = max(costs, key=lambda expense: costs[expense])
        yield _finding(
            min((total - limit) / limit, 1.0),
            "budget exceeded by ${excess:,.0f} of ${budget:,.0f}: the trip costs ${total:,.0f}, most of it for {most}",
            excess=total - limit,
            budget=limit,
            total=total,
            most=f"{most} (${costs[most]:,.0f})",
        )


def costs_of(view: PlanView) -> dict[str, float]:
    """Dollars for everyone, by kind of expense. A place that is not in the catalogue is free, as in the benchmark; in
    E_constraint it costs as much as the cheapest of its city, so that invented names do not save money."""
    people = view.trip.people
    costs = {"transportation": 0.0, "meals": 0.0, "accommodation": 0.0}
    for day in view.days:
        if day.transport is not None and day.transport.cost is not None:
            costs["transportation"] += day.transport.cost
        for entity in day.entities:
            if isinstance(entity.place, Restaurant):
                costs["meals"] += entity.place.cost * people
            elif isinstance(entity.place, Stay):
                costs["accommodation"] += entity.place.price * entity.place.units(people)
            elif entity.place is None and entity.field != "attraction" and view.purpose == "constraint":
                costs["accommodation" if entity.field == "accommodation" else "meals"] += _cheapest(view, day, entity)
    return costs


def _cheapest(view: PlanView, day: DayView, entity: Entity) -> float:
    """Dollars for everyone at the cheapest such place of the entity's city, else of the day's; 0 without one."""
    if view.catalogue is None:
        return 0.0
    stays, meals, people = view.catalogue.stays, view.catalogue.restaurants, view.trip.people
    for city in (entity.city, *reversed(day.cities)):
        nights = [stay.price * stay.units(people) for stay in stays.of_city(city)]
        costs = nights if entity.field == "accommodation" else [meal.cost * people for meal in meals.of_city(city)]
        if costs:
            return min(costs)
    return 0.0


def connectivity(view: PlanView) -> Iterator[Finding]:
    """Changes of city without an existing flight, drive or taxi between the two cities."""
    moves = list(_moves(view))
    if not view.route:
        yield _finding(1.0, "no day says in which city it is, so no way leads anywhere")
    for day, origin, destination in moves:
        reason = _no_way(view, day, origin, destination)
        if reason is not None:
            yield _finding(
                1 / len(moves),
                "day {day}: no valid transport from {origin} to {destination}: {reason}",
                day=day.number,
                field="transportation",
                origin=origin,
                destination=destination,
                reason=reason,
            )


def _moves(view: PlanView) -> Iterator[tuple[DayView, str, str]]:
    """(day, from, to) of each change of city, also between days, from the origin and back to it."""
    here = view.trip.org
    last: DayView | None = None
    for day in view.days:
        if not day.cities:
            continue
        if here is not None and day.cities[0] != here:
            yield day, here, day.cities[0]
        if day.travels and day.cities[0] != day.cities[1]:
            yield day, day.cities[0], day.cities[1]
        here, last = day.cities[-1], day
    if last is not None and here is not None and view.trip.org is not None and here != view.trip.org:
        yield last, here, view.trip.org


def _no_way(view: PlanView, day: DayView, origin: str, destination: str) -> str | None:
    """Reason why the day's transport does not make this move, or None."""
    transport = day.transport
    if transport is None:
        return "no transportation is given"
    if transport.cities is not None and transport.cities != (origin, destination):
        return f"{_quoted(transport.written)} goes from {transport.cities[0]} to {transport.cities[1]}"
    if transport.means is None:
        return f"{_quoted(transport.written)} is neither a flight nor self-driving nor a taxi"
    if view.catalogue is None:
        return "no flight number is given" if transport.means == "flight" and transport.number is None else None
    return _unknown_transport(view, transport)


def _unknown_transport(view: PlanView, transport: TransportEntry) -> str | None:
    if transport.means != "flight":
        return None if transport.cost is not None else f"there is no {transport.means} between them"
    if transport.number is None:
        return "no flight number is given"
    if transport.flight is None:
        return f"there is no flight {transport.number} between them"
    dates, flies = view.trip.date, transport.flight.date
    if len(dates) >= transport.day and _ISO_DATE.fullmatch(flies) and dates[transport.day - 1] != flies:
        return f"flight {transport.number} flies on {flies}, not on {dates[transport.day - 1]}"
    return None


def completeness(view: PlanView) -> Iterator[Finding]:
    """Missing fields. Days need a city, all but the last an accommodation; travel days need transportation, others
    three meals and an attraction."""
    required = [(day, name) for day in view.days for name in _required(day, is_last=day.number == len(view.days))]
    for day, fields in groupby(required, key=lambda entry: entry[0]):
        missing = [name for _, name in fields if name not in day.filled]
        share = len(missing) / len(required)
        if not day.present:
            yield _finding(share, "day {day} is missing", day=day.number)
            continue
        for name in missing:
            yield _finding(1 / len(required), "day {day}: {field} missing", day=day.number, field=name)


def _required(day: DayView, *, is_last: bool) -> list[str]:
    fields = ["current_city", *(("transportation",) if day.travels else ("breakfast", "attraction", "lunch", "dinner"))]
    return fields if is_last else [*fields, "accommodation"]


def preferences(view: PlanView) -> Iterator[Finding]:
    """Violated wishes about house rule, room type, cuisines and transport, with equal weights for all stated wishes."""
    trip = view.trip
    asked = [trip.house_rule, trip.room_type, trip.cuisine or None, trip.transportation]
    count = sum(wish is not None for wish in asked)
    if trip.house_rule is not None:
        rule = trip.house_rule
        forbidding = _stays(view, lambda stay: f"No {rule}" in stay.house_rules)
        yield from _per_stay(forbidding, count, "day {day}: {place} does not allow {wish} ({rules})", rule)
    if trip.room_type is not None:
        wanted = trip.room_type
        other = _stays(view, lambda stay: not fits_room_type(stay, wanted))
        yield from _per_stay(other, count, "day {day}: {place} is of type {type}, asked for: {wish}", wanted)
    if trip.cuisine and view.catalogue is not None:
        yield from _missing_cuisines(view, 1 / count)
    if trip.transportation is not None:
        yield from _forbidden_transport(view, 1 / count)


def fits_room_type(stay: Stay, wanted: str) -> bool:
    """True if an accommodation has the requested room type, or the request is unknown."""
    if wanted == "not shared room":
        return stay.room_type != "Shared room"
    types = {"shared room": "Shared room", "private room": "Private room", "entire room": "Entire home/apt"}
    return wanted not in types or stay.room_type == types[wanted]


def _stays(view: PlanView, breaks: Callable[[Stay], bool]) -> list[tuple[Entity, Stay]]:
    """Stays that violate a wish, each once, with its first entry in the plan."""
    by_stay: dict[Stay, Entity] = {}
    for entity in view.entities:
        if isinstance(entity.place, Stay) and breaks(entity.place):
            by_stay.setdefault(entity.place, entity)
    return [(entity, stay) for stay, entity in by_stay.items()]


def _per_stay(stays: list[tuple[Entity, Stay]], count: int, message: str, wish: str) -> Iterator[Finding]:
    for entity, stay in stays:
        share = 1 / (count * len(stays))
        yield _finding(share, message, entity, wish=wish, rules=stay.house_rules, type=stay.room_type)


def _missing_cuisines(view: PlanView, share: float) -> Iterator[Finding]:
    """Requested cuisines without a meal. A meal at the origin does not count, as in the benchmark."""
    had = {
        cuisine
        for entity in view.entities
        if isinstance(entity.place, Restaurant) and entity.city != view.trip.org
        for cuisine in entity.place.cuisines
    }
    for cuisine in view.trip.cuisine:
        if cuisine not in had:
            yield _finding(share / len(view.trip.cuisine), "no meal of {cuisine} cuisine, asked for", cuisine=cuisine)


def _forbidden_transport(view: PlanView, share: float) -> Iterator[Finding]:
    means = {"no flight": "flight", "no self-driving": "self-driving"}.get(str(view.trip.transportation))
    used = [day.transport for day in view.days if day.transport is not None and day.transport.means == means]
    for transport in used:
        message = "day {day}: {place}, but the query asks for {wish}"
        yield _finding(share / len(used), message, transport, wish=view.trip.transportation)


def diversity(view: PlanView) -> Iterator[Finding]:
    """Restaurants and attractions that repeat an earlier one."""
    visits = [entity for entity in view.entities if entity.field != "accommodation"]
    seen: dict[tuple[bool, str, str], Entity] = {}
    for entity in visits:
        key = (entity.field in MEALS, entity.name.lower(), entity.city.lower())
        first = seen.setdefault(key, entity)
        if first is not entity:
            message = "day {day}: {field} repeats {place} (day {first_day}: {first_field})"
            yield _finding(1 / len(visits), message, entity, first_day=first.day, first_field=first.field)


def hallucination(view: PlanView) -> Iterator[Finding]:
    """Restaurants, attractions and accommodations that do not exist in the city written after them."""
    if view.catalogue is None:
        return
    entities = list(view.entities)
    for entity in entities:
        if entity.place is None:
            yield _finding(1 / len(entities), "day {day}: {field} {place} is not in the reference information", entity)


def structure(view: PlanView) -> Iterator[Finding]:
    """Broken conditions of a reasonable trip, 1/7 each, however often broken."""
    for condition in _CONDITIONS:
        broken = list(condition(view))
        for message in broken:
            yield _finding(1 / (len(_CONDITIONS) * len(broken)), "{what}", what=message)


def _has_all_days(view: PlanView) -> Iterator[str]:
    if view.num_written != len(view.days):
        yield f"the plan has {view.num_written} days, the trip {len(view.days)}"


def _is_closed_circle(view: PlanView) -> Iterator[str]:
    route, org = view.route, view.trip.org
    if not route:
        yield "the plan names no city"
    if org is None or not route:
        return
    if route[0][1] != org:
        yield f"day {route[0][0]}: the trip starts in {route[0][1]}, not in {org}"
    if route[-1][1] != org:
        yield f"day {route[-1][0]}: the trip ends in {route[-1][1]}, not in {org}"


def _visits_in_blocks(view: PlanView) -> Iterator[str]:
    """No city is visited twice or left on the day of arrival, except the first and last of the route."""
    route = view.route
    blocks = [(city, [day for day, _ in stops]) for city, stops in groupby(route, key=lambda stop: stop[1])]
    inner = blocks[1:-1]
    for index, (city, days) in enumerate(inner):
        if any(city == other for other, _ in blocks[: index + 1]):
            yield f"day {days[0]}: {city} is visited a second time"
        elif len(days) == 1 or (len(set(days)) == 1 and view.days[days[0] - 1].travels):
            yield f"day {days[0]}: {city} is left on the day of arrival"


def _visits_asked_cities(view: PlanView) -> Iterator[str]:
    """The plan visits as many cities as requested, all of them at the destination."""
    trip, catalogue = view.trip, view.catalogue
    first_day = {city: day for day, city in reversed(view.route) if city != trip.org}
    if trip.visiting_city_number is not None and len(first_day) != trip.visiting_city_number:
        names = ", ".join(reversed(first_day)) or "none"
        yield f"{len(first_day)} cities are visited ({names}), not {trip.visiting_city_number}"
    for city, day in reversed(first_day.items()):
        if not trip.within_a_state:
            if trip.dest is not None and city != trip.dest:
                yield f"day {day}: {city} is not the destination {trip.dest}"
        elif catalogue is not None and catalogue.states:
            if catalogue.states.get(city) != trip.dest:
                yield f"day {day}: {city} is not in {trip.dest}"
        elif catalogue is not None and city not in catalogue.cities:
            yield f"day {day}: {city} is not among the cities of the reference information"


def _names_places_of_the_day(view: PlanView) -> Iterator[str]:
    """Meals and attractions are in a city of their day, the accommodation in its last one."""
    for day in view.days:
        for entity in day.entities:
            allowed = day.cities[-1:] if entity.field == "accommodation" else day.cities
            if allowed and entity.city and entity.city not in allowed:
                yield f"day {day.number}: {entity.field} {_quoted(entity.written)} is not in {' or '.join(allowed)}"


def _keeps_minimum_nights(view: PlanView) -> Iterator[str]:
    stays = [(day.number, day.entity("accommodation")) for day in view.days]
    for place, run in groupby(stays, key=lambda stay: stay[1].place if stay[1] else None):
        nights = [number for number, _ in run]
        if isinstance(place, Stay) and len(nights) < place.minimum_nights:
            yield (
                f"day {nights[0]}: {_quoted(place.name)} is booked for {len(nights)} night(s), "
                f"its minimum is {place.minimum_nights:g}"
            )


def _uses_compatible_transport(view: PlanView) -> Iterator[str]:
    """Self-driving excludes flights and taxis."""
    first = {day.transport.means: day.number for day in reversed(view.days) if day.transport is not None}
    for other in ("flight", "taxi"):
        if "self-driving" in first and other in first:
            yield f"self-driving (day {first['self-driving']}) and {other} (day {first[other]}) in one trip"


_CONDITIONS: tuple[Callable[[PlanView], Iterator[str]], ...] = (
    _has_all_days,
    _is_closed_circle,
    _visits_in_blocks,
    _visits_asked_cities,
    _names_places_of_the_day,
    _keeps_minimum_nights,
    _uses_compatible_transport,
)

CONSTRAINED: Mapping[str, Dimension] = {
    "budget": budget,
    "connectivity": connectivity,
    "completeness": completeness,
    "preferences": preferences,
    "diversity": diversity,
}
"""The dimensions that are terms of E_constraint."""

CHECKED: Mapping[str, Dimension] = {**CONSTRAINED, "hallucination": hallucination, "structure": structure}
"""The dimensions of a parsed plan: all but parse, which is then 0."""

DIMENSIONS = (*CHECKED, "parse")


def dimension_findings(view: PlanView) -> dict[str, list[Finding]]:
    """Findings by dimension, for a parsed plan."""
    return {name: list(dimension(view)) for name, dimension in CHECKED.items()}


def dimension_values(findings: Mapping[str, Iterable[Finding]]) -> dict[str, float]:
    """Values in [0, 1] of the eight dimensions, for a parsed plan."""
    sums = {name: math.fsum(finding.penalty for finding in of_dimension) for name, of_dimension in findings.items()}
    # Shares such as 3 * (1/3) may exceed 1 by rounding.
    return {**{name: min(value, 1.0) for name, value in sums.items()}, "parse": 0.0}


UNPARSED = dict.fromkeys(DIMENSIONS, 1.0)
"""Values of a text without a plan."""


def violation_score(values: Mapping[str, float]) -> float:
    """Mean of the eight dimensions."""
    return sum(values[name] for name in DIMENSIONS) / len(DIMENSIONS)


def _quoted(text: str) -> str:
    return text if len(text) <= MAX_QUOTED else f"{text[: MAX_QUOTED - 1]}…"
