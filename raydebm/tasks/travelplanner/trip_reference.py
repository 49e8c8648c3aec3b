"""Reference information: the database's rows for one trip, given with the query in sole-planning mode.

In:   the benchmark's own form (a list of {"Description", "Content"}, possibly as text, with tables of fixed width), or
      the rows saved in a problem's data.
Out:  a TripReference: rows for a Catalogue, for prompts, and for a problem's data.
Independent of: plans, queries.

Columns that plans do not need (coordinates, addresses, telephone numbers, web sites) are left out of rows and prompts:
they are two thirds of the text, and the context of generators and scorer is limited.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from pydantic import TypeAdapter, ValidationError

from raydebm.errors import TaskDataError
from raydebm.identity import canonical_json
from raydebm.records import REFERENCE_HEADING
from raydebm.tasks.sources import written_value
from raydebm.tasks.travelplanner.catalogue import (
    COLUMNS,
    Attraction,
    Catalogue,
    Drive,
    Flight,
    Restaurant,
    Stay,
    attraction_of,
    drive_of,
    flight_of,
    restaurant_of,
    stay_of,
)

_TITLE = re.compile(
    r"(?P<kind>Attractions|Restaurants|Accommodations) in (?P<city>.{1,80})"
    r"|(?P<drive>Flight|Self-driving|Taxi) from (?P<org>.{1,80}?) to (?P<dest>.{1,80}?)"
    r"(?: on (?P<date>\d{4}-\d\d-\d\d))?"
)
_KINDS: Mapping[str, tuple[str, Any]] = {
    "Attractions": ("attractions", attraction_of),
    "Restaurants": ("restaurants", restaurant_of),
    "Accommodations": ("stays", stay_of),
    "Flight": ("flights", flight_of),
}
"""Field of ``TripReference`` and builder of its rows, by the first word of the title."""
_DRIVE = re.compile(r"duration: (?P<duration>[^,]{1,60}), distance: (?P<distance>[\d,.]{1,20} km)")
_INDEX = re.compile(r"(\d+)\s{2,}")
_RESTAURANT_COLUMNS = "name | average cost per person | cuisines"
_STAY_COLUMNS = "name | price per night | room type | house rules | minimum nights | maximum occupancy"
_FLIGHT_COLUMNS = "number | price per person | departure | arrival"


@dataclass(frozen=True, slots=True, kw_only=True)
class TripReference:
    """Rows of one problem's reference information, in the order of the source."""

    attractions: tuple[Attraction, ...]
    restaurants: tuple[Restaurant, ...]
    stays: tuple[Stay, ...]
    flights: tuple[Flight, ...]
    drives: tuple[Drive, ...]
    no_flights: tuple[tuple[str, str, str], ...]
    """(origin, destination, date) of searches for which the source lists no flight."""

    def catalogue(self) -> Catalogue:
        return Catalogue(
            attractions=self.attractions,
            restaurants=self.restaurants,
            stays=self.stays,
            flights=self.flights,
            drives=self.drives,
        )

    def to_json(self) -> str:
        """The rows as JSON, for a problem's data."""
        return canonical_json(asdict(self))


_SAVED = TypeAdapter(TripReference)


def catalogue_from(text: str) -> Catalogue:
    """Catalogue of the rows in a problem's data, as written by ``TripReference.to_json``."""
    try:
        return _SAVED.validate_json(text).catalogue()
    except ValidationError as error:
        raise TaskDataError(f"field 'reference' of the problem's data cannot be read: {error}") from error


def read_items(value: Any, *, where: str) -> TripReference:
    """Parse reference information in the benchmark's own form.

    Args:
        value: a list of {"Description": ..., "Content": ...}, or the same as JSON or a Python literal.
        where: location of the row, for messages.
    """
    items = written_value(value)
    if not isinstance(items, list) or not all(isinstance(entry, Mapping) for entry in items):
        raise TaskDataError(f"{where}: reference information must be a list of objects, got {type(items).__name__}")
    rows: dict[str, list[Any]] = {name: [] for name in TripReference.__dataclass_fields__}
    for entry in items:
        title, content = str(entry.get("Description", "")), entry.get("Content", "")
        match = _TITLE.fullmatch(title)
        if match is None:
            raise TaskDataError(f"{where}: reference item {title!r} is of an unknown kind")
        _read_item(match, content, rows, where=f"{where}: {title}")
    rows["drives"] = list(dict.fromkeys(rows["drives"]))  # listed once per mode of transport
    return TripReference(**{name: tuple(entries) for name, entries in rows.items()})


def _read_item(match: re.Match[str], content: Any, rows: dict[str, list[Any]], *, where: str) -> None:
    kind = match["kind"] or match["drive"]
    if kind in _KINDS:
        name, build = _KINDS[kind]
        try:
            found = [build(cells) for cells in _cells(content, COLUMNS[name], where)]
        except (KeyError, ValueError) as error:
            raise TaskDataError(f"{where}: {error}") from error
        rows[name] += found
        if kind == "Flight" and not found:
            rows["no_flights"].append((match["org"], match["dest"], match["date"] or ""))
        return
    drive = _DRIVE.search(str(content))
    known = drive is not None and "day" not in drive["duration"]
    duration, distance = (drive["duration"], drive["distance"]) if drive and known else ("", "")
    rows["drives"].append(drive_of(match["org"], match["dest"], duration=duration, distance=distance))


def _cells(content: Any, columns: tuple[str, ...], where: str) -> Iterator[Mapping[str, str]]:
    """Rows of a table: a list of objects, or text of fixed width. A single line ("There is no ...") has no rows."""
    if isinstance(content, Sequence) and not isinstance(content, str):
        for row in content:
            yield {name: str(row[name]) for name in columns if name in row}
        return
    lines = str(content).split("\n")
    if len(lines) < 2:
        return
    ends = _column_ends(lines[0], columns, where)
    order = sorted(columns, key=lambda name: ends[name])
    body = [line for line in lines[1:] if line.strip()]
    offset = _has_index(body, first_end=ends[order[0]])
    for line in body:
        cells, start = {}, 0
        for name in order:
            cells[name] = line[start : ends[name]].strip()
            start = ends[name]
        if offset:
            cells[order[0]] = re.sub(r"^\d+\s+", "", cells[order[0]])
        yield cells


def _column_ends(header: str, columns: tuple[str, ...], where: str) -> dict[str, int]:
    """End of each column. Headers and cells are aligned to the right."""
    ends: dict[str, int] = {}
    for name in columns:
        match = re.search(rf"(?:^|\s){re.escape(name)}(?=\s|$)", header)
        if match is None:
            raise TaskDataError(f"{where}: column {name!r} is missing in {' '.join(header.split())!r}")
        ends[name] = match.end()
    return ends


def _has_index(body: Sequence[str], *, first_end: int) -> bool:
    """True if rows begin with a row number: increasing integers at the left edge."""
    matches = [_INDEX.match(line[:first_end]) for line in body]
    numbers = [int(match[1]) for match in matches if match]
    return len(numbers) == len(body) and all(a < b for a, b in pairwise(numbers))


def prompt_of(query: str, reference: TripReference | None) -> str:
    """The query, followed by its reference information."""
    if reference is None:
        return query.strip()
    return "\n".join([query.strip(), "", REFERENCE_HEADING, *_reference_lines(reference)])


def _reference_lines(reference: TripReference) -> Iterator[str]:
    yield from _city_lines("Attractions", reference.attractions)
    yield from _city_lines("Restaurants", reference.restaurants)
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
