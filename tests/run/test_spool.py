"""Tables on their way to workers."""

import random

import pyarrow as pa
import pytest

from raydebm.run.folder import Folder
from raydebm.run.spool import BUCKET_ROWS, PlacedRows, Spool, read_slices, slice_rows


@pytest.fixture
def folder(tmp_path):
    return Folder(str(tmp_path))


def test_slices_come_back_by_their_addresses(folder):
    spool = Spool(folder, "stage", "spool")
    for number in range(3):
        spool.add(pa.table({"x": [number, number]}))

    tables = [table for block in spool.addresses for table in read_slices(block)]
    assert [table["x"].to_pylist() for table in tables] == [[0, 0], [1, 1], [2, 2]]
    assert [table["x"][0].as_py() for table in spool.tables()] == [0, 1, 2]
    assert spool.num_rows == 6


def test_a_spool_begins_without_what_a_killed_process_left(folder):
    Spool(folder, "stage", "spool").add(pa.table({"x": [1]}))

    assert list(Spool(folder, "stage", "spool").tables()) == []
    assert not folder.exists("stage", "spool")


def test_a_closed_spool_leaves_nothing(folder):
    spool = Spool(folder, "stage", "spool")
    spool.add(pa.table({"x": [1]}))
    spool.close()

    assert not folder.exists("stage", "spool")


@pytest.mark.parametrize(
    ("total", "at_least", "expected"),
    [(0, 64, 64), (100, 64, 64), (2048 * 64, 64, 64), (2048 * 64 + 1, 64, 128), (1_000_000, 64, 512)],
)
def test_slices_grow_so_that_there_are_never_too_many(total, at_least, expected):
    assert slice_rows(total, at_least=at_least) == expected


SCHEMA = pa.schema([("text", pa.string()), ("score", pa.float64())])


def rows_at(positions):
    return pa.table(
        {
            "position": pa.array(positions, pa.int64()),
            "text": [f"t{position}" for position in positions],
            "score": [None if position % 3 == 0 else position / 7 for position in positions],
        }
    )


@pytest.mark.parametrize("seed", range(5))
def test_rows_come_back_in_the_order_of_their_places(tmp_path, seed):
    """5,000 rows in three buckets, in shuffled blocks of up to 300 that mix buckets."""
    dice = random.Random(seed)
    positions = list(range(5000))
    dice.shuffle(positions)
    placed = PlacedRows(tmp_path, SCHEMA)
    while positions:
        size = dice.randint(1, 300)
        placed.add(rows_at(positions[:size]))
        positions = positions[size:]

    tables = list(placed.tables())

    assert pa.concat_tables(tables).equals(rows_at(range(5000)).select(SCHEMA.names))
    assert max(table.num_rows for table in tables) == BUCKET_ROWS


def test_places_may_be_left_out(tmp_path):
    """As waves do that end early."""
    placed = PlacedRows(tmp_path, SCHEMA)
    placed.add(rows_at([9000, 7]))

    assert [table["text"].to_pylist() for table in placed.tables()] == [["t7"], ["t9000"]]


def test_the_new_files_hold_the_rows_that_were_added(tmp_path):
    placed = PlacedRows(tmp_path, SCHEMA)
    placed.add(rows_at([0]))

    new = placed.add(rows_at([1, BUCKET_ROWS]))

    assert [path.name for path in new] == ["00000000-000001.parquet", "00000001-000000.parquet"]


def test_no_rows_are_no_tables(tmp_path):
    placed = PlacedRows(tmp_path, SCHEMA)
    placed.add(rows_at([]))

    assert list(placed.tables()) == []
