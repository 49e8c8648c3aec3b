"""The world of a trip: restaurants, attractions, accommodations, flights and drives.

In:   rows of the benchmark's database or of a problem's reference information (``database``, ``trip_reference``).
Out:  a Catalogue with look-ups by name and city.
Independent of: plans, problems, files.

Names match as in the benchmark's evaluator: the written name is part of the listed one, in the same city, and the first
such row counts. Unlike there, an exact match is preferred, and extra whitespace is ignored.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

Row = Mapping[str, str]
Mode = Literal["self-driving", "taxi"]

SEATS: Mapping[Mode, int] = {"self-driving": 5, "taxi": 4}
"""People per car."""
_SELF_DRIVING_RATE = 0.05
"""Dollars per kilometre; a taxi costs one dollar per kilometre."""
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "attractions": ("Name", "Latitude", "Longitude", "Address", "Phone", "Website", "City"),
    "restaurants": ("Name", "Average Cost", "Cuisines", "Aggregate Rating", "City"),
    "stays": (
        "NAME", "price", "room type", "house_rules", "minimum nights", "maximum occupancy", "review rate number",
        "city",
    ),
    "flights": (
        "Flight Number", "Price", "DepTime", "ArrTime", "ActualElapsedTime", "FlightDate", "OriginCityName",
        "DestCityName", "Distance",
    ),
}  # fmt: skip
"""Columns of the benchmark's tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attraction:
    name: str
    city: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restaurant:
    name: str
    city: str
    cost: float
    """Average dollars per person and meal."""
    cuisines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """An accommodation."""

    name: str
    city: str
    price: float
    """Dollars per night and unit."""
    room_type: str
    house_rules: str
    """Text such as ``"No parties & No pets"``; empty without rules."""
    minimum_nights: float
    maximum_occupancy: int
    """People per unit."""

    def units(self, people: int) -> int:
        """Number of units for a group."""
        return math.ceil(people / max(self.maximum_occupancy, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    number: str
    origin: str
    destination: str
    price: float
    """Dollars per person."""
    date: str = ""
    departure: str = ""
    arrival: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """The road between two cities. Costs are dollars per car; None without such a drive."""

    origin: str
    destination: str
    duration: str = ""
    distance: str = ""
    self_driving: int | None = None
    taxi: int | None = None


def attraction_of(row: Row) -> Attraction:
    """An attraction from a benchmark row. It and the next three functions raise KeyError or ValueError for bad rows."""
    return Attraction(name=_name(row["Name"]), city=row["City"])


def restaurant_of(row: Row) -> Restaurant:
    cuisines = tuple(row["Cuisines"].split(", "))
    return Restaurant(name=_name(row["Name"]), city=row["City"], cost=_number(row, "Average Cost"), cuisines=cuisines)


def stay_of(row: Row) -> Stay:
    return Stay(
        name=_name(row["NAME"]),
        city=row["city"],
        price=_number(row, "price"),
        room_type=row["room type"],
        house_rules=row["house_rules"],
        minimum_nights=_number(row, "minimum nights"),
        maximum_occupancy=int(_number(row, "maximum occupancy")),
    )


def flight_of(row: Row) -> Flight:
    return Flight(
        number=row["Flight Number"],
        origin=row["OriginCityName"],
        destination=row["DestCityName"],
        price=_number(row, "Price"),
        date=row["FlightDate"],
        departure=row["DepTime"],
        arrival=row["ArrTime"],
    )


def drive_of(origin: str, destination: str, *, duration: str, distance: str) -> Drive:
    """A drive with the benchmark's costs: none without a duration and distance, or if it takes a day or more."""
    drive = Drive(origin=origin, destination=destination, duration=duration, distance=distance)
    kilometres = re.fullmatch(r"\s*([\d,]+(?:\.\d+)?)\s*km\s*", distance)
    if kilometres is None or not duration or "day" in duration:
        return drive
    length = float(kilometres[1].replace(",", ""))
    return replace(drive, self_driving=int(length * _SELF_DRIVING_RATE), taxi=int(length))


def _name(text: str) -> str:
    """Name as tables have it: a line break is a backslash and an n. Inner spaces are kept, as in the evaluator."""
    return text.strip().replace("\n", "\\n")


def _number(row: Row, column: str) -> float:
    try:
        return float(row[column].replace("$", "").replace(",", ""))
    except (KeyError, ValueError) as error:
        raise ValueError(f"{column} must be a number, got {row.get(column)!r}") from error


P = TypeVar("P", Attraction, Restaurant, Stay)


def on_one_line(name: str) -> str:
    """A name with single blanks and no line breaks (reference tables write those as a backslash and an n)."""
    return " ".join(name.replace("\\n", " ").split())


class Places(Generic[P]):
    """Places of one kind, found by their name, or a part of it, within a city."""

    def __init__(self, rows: Iterable[P]) -> None:
        by_city: dict[str, list[P]] = {}
        for row in rows:
            by_city.setdefault(row.city, []).append(row)
        self._by_city: dict[str, tuple[P, ...]] = {city: tuple(rows) for city, rows in by_city.items()}
        self._names = {city: tuple(on_one_line(row.name) for row in rows) for city, rows in by_city.items()}

    def named(self, name: str, city: str) -> P | None:
        """The place with exactly that name, else the first whose name contains it, else None.

        Names are compared ``on_one_line``. An empty name matches no place.
        """
        names, written = self._names.get(city, ()), on_one_line(name)
        if not written:
            return None
        if written in names:
            return self._by_city[city][names.index(written)]
        return next((self._by_city[city][i] for i, listed in enumerate(names) if written in listed), None)

    def of_city(self, city: str) -> tuple[P, ...]:
        """All places of the city, in the order of the source."""
        return self._by_city.get(city, ())

    @property
    def cities(self) -> frozenset[str]:
        """Cities with known places."""
        return frozenset(self._by_city)


class Catalogue:
    """Everything that a plan may use. Of several drives between the same cities the first counts, as in the
    benchmark."""

    def __init__(
        self,
        *,
        attractions: Iterable[Attraction] = (),
        restaurants: Iterable[Restaurant] = (),
        stays: Iterable[Stay] = (),
        flights: Iterable[Flight] = (),
        drives: Iterable[Drive] = (),
        states: Mapping[str, str] | None = None,
    ) -> None:
        self.attractions, self.restaurants, self.stays = Places(attractions), Places(restaurants), Places(stays)
        self.states = dict(states or {})
        """State of each known city; empty for reference information, which has no states."""
        self._flights: dict[str, list[Flight]] = {}
        for flight in flights:
            self._flights.setdefault(flight.number, []).append(flight)
        self._drives: dict[tuple[str, str], Drive] = {}
        for drive in drives:
            self._drives.setdefault((drive.origin, drive.destination), drive)

    def flight(self, number: str, origin: str, destination: str) -> Flight | None:
        """Flight with that number between the two cities, on any date."""
        rows = self._flights.get(number, ())
        return next((row for row in rows if row.origin == origin and row.destination == destination), None)

    def drive_cost(self, mode: Mode, origin: str, destination: str) -> int | None:
        """Dollars per car; None without such a drive."""
        drive = self._drives.get((origin, destination))
        if drive is None:
            return None
        return drive.self_driving if mode == "self-driving" else drive.taxi

    @property
    def cities(self) -> frozenset[str]:
        """Cities that can be visited: those with a state if states are known, else those with a listed place."""
        if self.states:
            return frozenset(self.states)
        return self.attractions.cities | self.restaurants.cities | self.stays.cities
