"""Read the benchmark's database: a folder of CSV files, as its authors published it.

In:   the folder with ``accommodations/``, ``attractions/``, ``restaurants/``, ``flights/``, ``googleDistanceMatrix/``
      and ``background/``. The flights may be a subset.
Out:  a Catalogue, cached per process.
Independent of: problems, plans.
"""

import csv
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from raydebm.errors import TaskDataError
from raydebm.tasks.travelplanner.catalogue import (
    COLUMNS,
    Catalogue,
    Row,
    attraction_of,
    drive_of,
    flight_of,
    restaurant_of,
    stay_of,
)

VARIABLE = "RAYDEBM_TRAVELPLANNER_DB"
"""Environment variable with the database's folder."""
_NO_VALUE = frozenset({"", "nan", "NaN", "NA", "N/A", "None", "null"})
_REMEDY = "copy the benchmark's database again"


def database_folder() -> str | None:
    """The database's folder according to the environment, or None."""
    return os.environ.get(VARIABLE) or None


@cache
def read_database(folder: str) -> Catalogue:
    """The whole database. Rows with a missing value, except drives, are dropped, as in the benchmark's evaluator.

    Raises:
        TaskDataError: the folder, a file or a column is missing; the message names it.
    """
    root = Path(folder)
    if not root.is_dir():
        raise TaskDataError(f"no database folder at {folder!r}; set {VARIABLE} to the folder that holds restaurants/")
    flown = tuple(name for name in COLUMNS["flights"] if name not in ("ActualElapsedTime", "Distance"))
    roads = _rows(root, "googleDistanceMatrix", ("origin", "destination", "duration", "distance"), complete=False)
    return Catalogue(
        attractions=map(attraction_of, _rows(root, "attractions", COLUMNS["attractions"])),
        restaurants=map(restaurant_of, _rows(root, "restaurants", COLUMNS["restaurants"])),
        stays=map(stay_of, _rows(root, "accommodations", COLUMNS["stays"])),
        flights=map(flight_of, _rows(root, "flights", flown)),
        drives=(
            drive_of(row["origin"], row["destination"], duration=row["duration"], distance=row["distance"])
            for row in roads
        ),
        states=_states(root),
    )


def _states(root: Path) -> dict[str, str]:
    file = root / "background" / "citySet_with_states.txt"
    if not file.is_file():
        raise TaskDataError(f"the database at {str(root)!r} lacks {file.relative_to(root)}; {_REMEDY}")
    lines = [line.split("\t") for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
    return {parts[0]: parts[1] for parts in lines if len(parts) == 2}


def _rows(root: Path, name: str, columns: tuple[str, ...], *, complete: bool = True) -> Iterator[Row]:
    """Rows of the CSV file in a folder; if ``complete``, only those with a value in each of the columns."""
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
