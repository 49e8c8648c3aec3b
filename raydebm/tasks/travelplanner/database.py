"""Read the benchmark's database of trips: a folder of CSV files, as published by its authors.

In:   the folder with ``accommodations/``, ``attractions/``, ``restaurants/``, ``flights/``, ``googleDistanceMatrix/``
      and ``background/``. The file of flights may be a subset.
Out:  a Catalogue, cached per process.
Does not know: problems, plans.
"""

import csv
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

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

VARIABLE = "RAYDEBM_TRAVELPLANNER_DB"
"""Environment variable with the database's folder."""

_NO_VALUE = frozenset({"", "nan", "NaN", "NA", "N/A", "None", "null"})
_SELF_DRIVING_RATE = 0.05
"""Dollars per kilometre; a taxi costs one dollar per kilometre."""

_REMEDY = "copy the benchmark's database again"

_Row = Mapping[str, str]


def database_folder() -> str | None:
    """The database's folder according to the environment, or None."""
    return os.environ.get(VARIABLE) or None


@cache
def read_database(folder: str) -> Catalogue:
    """The whole database, without rows that lack a value (which the benchmark's evaluator also drops).

    Raises:
        TaskDataError: a file or column is missing; the message names it.
    """
    root = Path(folder)
    if not root.is_dir():
        raise TaskDataError(f"no database folder at {folder!r}; set {VARIABLE} to the folder that holds restaurants/")
    return catalogue_of(
        attractions=_attractions(root),
        restaurants=_restaurants(root),
        stays=_stays(root),
        flights=_flights(root),
        drives=_drives(root),
        states=_states(root),
    )


def _attractions(root: Path) -> Iterator[Attraction]:
    columns = ("Name", "Latitude", "Longitude", "Address", "Phone", "Website", "City")
    for row in _rows(root, "attractions", columns):
        yield Attraction(name=row["Name"], city=row["City"])


def _restaurants(root: Path) -> Iterator[Restaurant]:
    for row in _rows(root, "restaurants", ("Name", "Average Cost", "Cuisines", "Aggregate Rating", "City")):
        yield Restaurant(
            name=row["Name"],
            city=row["City"],
            cost=float(row["Average Cost"]),
            cuisines=tuple(row["Cuisines"].split(", ")),
        )


def _stays(root: Path) -> Iterator[Stay]:
    columns = ("NAME", "price", "room type", "house_rules", "minimum nights", "maximum occupancy", "city")
    for row in _rows(root, "accommodations", (*columns, "review rate number")):
        yield Stay(
            name=row["NAME"],
            city=row["city"],
            price=float(row["price"]),
            room_type=row["room type"],
            house_rules=row["house_rules"],
            minimum_nights=float(row["minimum nights"]),
            maximum_occupancy=int(float(row["maximum occupancy"])),
        )


def _flights(root: Path) -> Iterator[Flight]:
    columns = ("Flight Number", "Price", "DepTime", "ArrTime", "FlightDate", "OriginCityName", "DestCityName")
    for row in _rows(root, "flights", columns):
        yield Flight(
            number=row["Flight Number"],
            origin=row["OriginCityName"],
            destination=row["DestCityName"],
            price=float(row["Price"]),
            date=row["FlightDate"],
            departure=row["DepTime"],
            arrival=row["ArrTime"],
        )


def _drives(root: Path) -> Iterator[Drive]:
    for row in _rows(root, "googleDistanceMatrix", ("origin", "destination", "duration", "distance"), complete=False):
        yield drive_of(row["origin"], row["destination"], duration=row["duration"], distance=row["distance"])


def drive_of(origin: str, destination: str, *, duration: str, distance: str) -> Drive:
    """A drive with the benchmark's costs. Without a duration, or of a day or more, it has none there."""
    kilometres = re.fullmatch(r"\s*([\d,]+(?:\.\d+)?)\s*km\s*", distance)
    if kilometres is None or not duration or "day" in duration:
        return Drive(origin=origin, destination=destination, duration=duration, distance=distance)
    length = float(kilometres[1].replace(",", ""))
    return Drive(
        origin=origin,
        destination=destination,
        duration=duration,
        distance=distance,
        self_driving=int(length * _SELF_DRIVING_RATE),
        taxi=int(length),
    )


def _states(root: Path) -> dict[str, str]:
    file = root / "background" / "citySet_with_states.txt"
    if not file.is_file():
        raise TaskDataError(f"the database at {str(root)!r} lacks {file.relative_to(root)}; {_REMEDY}")
    lines = [line.split("\t") for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
    return {parts[0]: parts[1] for parts in lines if len(parts) == 2}


def _rows(root: Path, name: str, columns: tuple[str, ...], *, complete: bool = True) -> Iterator[_Row]:
    """Rows of the one CSV file in a folder; with ``complete``, only those with a value in every column."""
    files = sorted((root / name).glob("*.csv"))
    if not files:
        raise TaskDataError(f"the database at {str(root)!r} lacks {name}/*.csv; {_REMEDY}")
    with files[0].open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        missing = [column for column in columns if column not in (reader.fieldnames or ())]
        if missing:
            raise TaskDataError(f"{str(files[0])!r} lacks column(s) {', '.join(missing)}; {_REMEDY}")
        for row in reader:
            if not complete or all(row[column] not in _NO_VALUE for column in columns):
                yield row
