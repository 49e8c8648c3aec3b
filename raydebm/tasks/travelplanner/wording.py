"""Prompts: the query and its reference information as readable text, and the inverse.

In:   a query and a Reference, or a prompt.
Out:  the text of a problem, or the Reference in it.
Does not know: plans, gold.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from raydebm.errors import TaskDataError
from raydebm.records import REFERENCE_HEADING
from raydebm.tasks.travelplanner.catalogue import Attraction, Drive, Flight, Restaurant, Stay
from raydebm.tasks.travelplanner.database import drive_of
from raydebm.tasks.travelplanner.trip_reference import TripReference

_RESTAURANT_COLUMNS = "name | average cost per person | cuisines"
_STAY_COLUMNS = "name | price per night | room type | house rules | minimum nights | maximum occupancy"
_FLIGHT_COLUMNS = "number | price per person | departure | arrival"

_SECTION = re.compile(
    r"(?P<kind>Attractions|Restaurants|Accommodations) in (?P<city>.{1,80}?)(?: \([^()]*\))?:"
    r"|Flights from (?P<org>.{1,80}?) to (?P<dest>.{1,80}?)(?: on (?P<date>\d{4}-\d\d-\d\d))?(?: \([^()]*\))?:"
)
_NO_FLIGHT = re.compile(r"There is no flight from (.{1,80}?) to (.{1,80}?)(?: on (\d{4}-\d\d-\d\d))?\.")
_DRIVE = re.compile(r"Driving from (.{1,80}?) to (.{1,80}?): ([^,]{1,60}), ([\d,.]{1,20} km), .{1,120}")
_NO_DRIVE = re.compile(r"There is no self-driving and no taxi from (.{1,80}?) to (.{1,80}?)\.")


def prompt_of(query: str, reference: TripReference | None) -> str:
    """The query, followed by its reference information."""
    if reference is None:
        return query.strip()
    return "\n".join([query.strip(), "", REFERENCE_HEADING, *_reference_lines(reference)])


def _reference_lines(reference: TripReference) -> Iterator[str]:
    for kind, rows in (("Attractions", reference.attractions), ("Restaurants", reference.restaurants)):
        yield from _city_lines(kind, rows)
    yield from _city_lines("Accommodations", reference.stays)
    legs: dict[tuple[str, str, str], list[Flight]] = {}
    for flight in reference.flights:
        legs.setdefault((flight.origin, flight.destination, flight.date), []).append(flight)
    for (origin, destination, date), flights in legs.items():
        yield f"Flights from {origin} to {destination}{_on(date)} ({_FLIGHT_COLUMNS}):"
        yield from (f"- {row.number} | ${row.price:g} | {row.departure} | {row.arrival}" for row in flights)
    for origin, destination, date in reference.no_flights:
        yield f"There is no flight from {origin} to {destination}{_on(date)}."
    yield from map(_drive_line, reference.drives)


def _city_lines(kind: str, rows: Iterable[Attraction | Restaurant | Stay]) -> Iterator[str]:
    by_city: dict[str, list[Any]] = {}
    for row in rows:
        by_city.setdefault(row.city, []).append(row)
    columns = {"Restaurants": f" ({_RESTAURANT_COLUMNS})", "Accommodations": f" ({_STAY_COLUMNS})"}.get(kind, "")
    for city, places in by_city.items():
        yield f"{kind} in {city}{columns}:"
        yield from map(_place_line, places)


def _place_line(place: Attraction | Restaurant | Stay) -> str:
    if isinstance(place, Restaurant):
        return f"- {place.name} | ${place.cost:g} | {', '.join(place.cuisines)}"
    if isinstance(place, Stay):
        terms = f"{place.room_type} | {place.house_rules} | {place.minimum_nights:g} | {place.maximum_occupancy}"
        return f"- {place.name} | ${place.price:g} | {terms}"
    return f"- {place.name}"


def _drive_line(drive: Drive) -> str:
    if drive.self_driving is None or drive.taxi is None:
        return f"There is no self-driving and no taxi from {drive.origin} to {drive.destination}."
    return (
        f"Driving from {drive.origin} to {drive.destination}: {drive.duration}, {drive.distance}, "
        f"self-driving ${drive.self_driving} for a car of up to 5, taxi ${drive.taxi} for a car of up to 4"
    )


def _on(date: str) -> str:
    return f" on {date}" if date else ""


def reference_in(prompt: str) -> TripReference | None:
    """The reference information of a prompt, the inverse of ``prompt_of``.

    Raises:
        TaskDataError: there is reference information, but it cannot be parsed; the message quotes the line.
    """
    rest = prompt.partition(REFERENCE_HEADING)[2]
    return _read_lines(rest.split("\n")) if rest.strip() else None


def _read_lines(lines: Iterable[str]) -> TripReference:
    rows: dict[str, list[Any]] = {name: [] for name in TripReference.__dataclass_fields__}
    section: re.Match[str] | None = None
    for line in (line.strip() for line in lines):
        if not line:
            continue
        if line.startswith("- ") and section is not None:
            _read_row(line[2:], section, rows)
        elif match := _SECTION.fullmatch(line):
            section = match
        else:
            section = None
            _read_sentence(line, rows)
    return TripReference(**{name: tuple(entries) for name, entries in rows.items()})


def _read_row(line: str, section: re.Match[str], rows: dict[str, list[Any]]) -> None:
    kind, city = section["kind"], section["city"]
    try:
        if kind == "Attractions":
            rows["attractions"].append(Attraction(name=line, city=city))
        elif kind == "Restaurants":
            name, cost, cuisines = line.rsplit(" | ", 2)
            rows["restaurants"].append(
                Restaurant(name=name, city=city, cost=_dollars(cost), cuisines=tuple(cuisines.split(", ")))
            )
        elif kind == "Accommodations":
            name, price, room, rules, nights, people = line.rsplit(" | ", 5)
            rows["stays"].append(
                Stay(
                    name=name,
                    city=city,
                    price=_dollars(price),
                    room_type=room,
                    house_rules=rules,
                    minimum_nights=float(nights),
                    maximum_occupancy=int(people),
                )
            )
        else:
            rows["flights"].append(_flight(line, section))
    except ValueError as error:
        raise TaskDataError(f"reference information: cannot read {line!r} under {section[0]!r}") from error


def _flight(line: str, section: re.Match[str]) -> Flight:
    number, price, departure, arrival = line.split(" | ")
    return Flight(
        number=number,
        origin=section["org"],
        destination=section["dest"],
        price=_dollars(price),
        date=section["date"] or "",
        departure=departure,
        arrival=arrival,
    )


def _read_sentence(line: str, rows: dict[str, list[Any]]) -> None:
    if match := _NO_FLIGHT.fullmatch(line):
        rows["no_flights"].append((match[1], match[2], match[3] or ""))
    elif match := _DRIVE.fullmatch(line):
        rows["drives"].append(drive_of(match[1], match[2], duration=match[3], distance=match[4]))
    elif match := _NO_DRIVE.fullmatch(line):
        rows["drives"].append(drive_of(match[1], match[2], duration="", distance=""))
    else:
        raise TaskDataError(
            f"reference information: cannot read {line[:120]!r}; expected sections such as 'Restaurants in Denver:' "
            "with lines '- name | $20 | cuisines'"
        )


def _dollars(text: str) -> float:
    return float(text.removeprefix("$").replace(",", ""))
