"""Reference information: the database's rows for one trip, given with the question (sole-planning mode).

In:   the benchmark's own form (a list of {"Description", "Content"}, also as text; contents are tables of fixed width),
or
      the form of prompts.
Out:  a Reference: rows for a Catalogue and for prompts.
Does not know: plans, queries.

Columns that no plan needs (coordinates, addresses, telephone numbers, web sites) are left out of rows and prompts: they
are two thirds of the text, and the context of generators and scorer is limited.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from raydebm.errors import TaskDataError
from raydebm.tasks.travelplanner.catalogue import (
    Attraction,
    Catalogue,
    Drive,
    Flight,
    Restaurant,
    Stay,
    catalogue_of,
)
from raydebm.tasks.travelplanner.database import drive_of

_TITLE = re.compile(
    r"(?P<kind>Attractions|Restaurants|Accommodations) in (?P<city>.{1,80})"
    r"|(?P<drive>Flight|Self-driving|Taxi) from (?P<org>.{1,80}?) to (?P<dest>.{1,80}?)"
    r"(?: on (?P<date>\d{4}-\d\d-\d\d))?"
)
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "Attractions": ("Name", "Latitude", "Longitude", "Address", "Phone", "Website", "City"),
    "Restaurants": ("Name", "Average Cost", "Cuisines", "Aggregate Rating", "City"),
    "Accommodations": (
        "NAME", "price", "room type", "house_rules", "minimum nights", "maximum occupancy", "review rate number",
        "city",
    ),
    "Flight": (
        "Flight Number", "Price", "DepTime", "ArrTime", "ActualElapsedTime", "FlightDate", "OriginCityName",
        "DestCityName", "Distance",
    ),
}  # fmt: skip
_DRIVE = re.compile(r"duration: (?P<duration>[^,]{1,60}), distance: (?P<distance>[\d,.]{1,20} km)")
_INDEX = re.compile(r"(\d+)\s{2,}")

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TripReference:
    """Rows of one problem's reference information. Every list is in the order of the source."""

    attractions: tuple[Attraction, ...] = ()
    restaurants: tuple[Restaurant, ...] = ()
    stays: tuple[Stay, ...] = ()
    flights: tuple[Flight, ...] = ()
    drives: tuple[Drive, ...] = ()
    no_flights: tuple[tuple[str, str, str], ...] = field(default=())
    """(origin, destination, date) without a flight, according to the source."""

    def catalogue(self) -> Catalogue:
        """Catalogue of the reference information."""
        return catalogue_of(
            attractions=self.attractions,
            restaurants=self.restaurants,
            stays=self.stays,
            flights=self.flights,
            drives=self.drives,
        )


def read_items(value: Any, *, where: str) -> TripReference:
    """Parse reference information in the benchmark's own form.

    Args:
        value: a list of {"Description": ..., "Content": ...}, or its text (JSON, or a Python list).
        where: name of the row for messages.

    Raises:
        TaskDataError: it has another form, or a table cannot be parsed.
    """
    items = _parsed(value, where) if isinstance(value, str) else value
    if not isinstance(items, Sequence) or not all(isinstance(entry, Mapping) for entry in items):
        raise TaskDataError(f"{where}: reference information must be a list of objects, got {type(items).__name__}")
    rows: dict[str, list[Any]] = {name: [] for name in TripReference.__dataclass_fields__}
    for entry in items:
        title, content = str(entry.get("Description", "")), entry.get("Content", "")
        match = _TITLE.fullmatch(title)
        if match is None:
            raise TaskDataError(f"{where}: reference item {title!r} is of an unknown kind")
        _read_item(match, content, rows, where=f"{where}: {title}")
    return _collected(rows)


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise TaskDataError(f"{where}: reference information must be a list of objects: {text[:60]!r}...") from error


def _read_item(match: re.Match[str], content: Any, rows: dict[str, list[Any]], *, where: str) -> None:
    if match["kind"] is not None:
        readers = {"Attractions": _attraction, "Restaurants": _restaurant, "Accommodations": _accommodation}
        names = {"Attractions": "attractions", "Restaurants": "restaurants", "Accommodations": "stays"}
        kind = match["kind"]
        rows[names[kind]] += [readers[kind](cells, where) for cells in _cells(content, _COLUMNS[kind], where)]
        return
    origin, destination = match["org"], match["dest"]
    if match["drive"] == "Flight":
        flights = [_flight(cells, where) for cells in _cells(content, _COLUMNS["Flight"], where)]
        rows["flights"] += flights
        if not flights:
            rows["no_flights"].append((origin, destination, match["date"] or ""))
        return
    drive = _DRIVE.search(str(content))
    duration, distance = (
        (drive["duration"], drive["distance"]) if drive and "day" not in drive["duration"] else ("", "")
    )
    rows["drives"].append(drive_of(origin, destination, duration=duration, distance=distance))


def _collected(rows: Mapping[str, Iterable[Any]]) -> TripReference:
    """Rows without repetitions: drives are listed once per mode of transport, and drives and tables may repeat."""
    return TripReference(
        **{
            name: tuple(dict.fromkeys(entries)) if name == "drives" else tuple(entries)
            for name, entries in rows.items()
        }
    )


def _cells(content: Any, columns: tuple[str, ...], where: str) -> Iterator[Mapping[str, str]]:
    """Rows of a table: a list of objects, or text of fixed width; a sentence ("There is no ...") has none."""
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
    """End of each column: headers and cells are flush right."""
    ends: dict[str, int] = {}
    for name in columns:
        match = re.search(rf"(?:^|\s){re.escape(name)}(?=\s|$)", header)
        if match is None:
            raise TaskDataError(f"{where}: column {name!r} is missing in {' '.join(header.split())!r}")
        ends[name] = match.end()
    return ends


def _has_index(body: Sequence[str], *, first_end: int) -> bool:
    """True if rows begin with a row number: increasing integers at the very left."""
    matches = [_INDEX.match(line[:first_end]) for line in body]
    numbers = [int(match[1]) for match in matches if match]
    return len(numbers) == len(body) and all(a < b for a, b in pairwise(numbers))


def _number(cells: Mapping[str, str], name: str, where: str) -> float:
    try:
        return float(cells[name].replace("$", "").replace(",", ""))
    except (KeyError, ValueError) as error:
        raise TaskDataError(f"{where}: {name} must be a number, got {cells.get(name)!r}") from error


def _name(text: str) -> str:
    """Name in tables: a line break is a backslash and an n; inner blanks stay, because the evaluator counts them."""
    return text.strip().replace("\n", "\\n")


def _attraction(cells: Mapping[str, str], where: str) -> Attraction:
    return Attraction(name=_name(cells["Name"]), city=cells["City"])


def _restaurant(cells: Mapping[str, str], where: str) -> Restaurant:
    return Restaurant(
        name=_name(cells["Name"]),
        city=cells["City"],
        cost=_number(cells, "Average Cost", where),
        cuisines=tuple(cells["Cuisines"].split(", ")),
    )


def _accommodation(cells: Mapping[str, str], where: str) -> Stay:
    return Stay(
        name=_name(cells["NAME"]),
        city=cells["city"],
        price=_number(cells, "price", where),
        room_type=cells["room type"],
        house_rules=cells["house_rules"],
        minimum_nights=_number(cells, "minimum nights", where),
        maximum_occupancy=int(_number(cells, "maximum occupancy", where)),
    )


def _flight(cells: Mapping[str, str], where: str) -> Flight:
    return Flight(
        number=cells["Flight Number"],
        origin=cells["OriginCityName"],
        destination=cells["DestCityName"],
        price=_number(cells, "Price", where),
        date=cells["FlightDate"],
        departure=cells["DepTime"],
        arrival=cells["ArrTime"],
    )
