"""Tables on their way to workers."""

import pyarrow as pa
import pytest

from raydebm.run.folder import Folder
from raydebm.run.spool import Spool, read_slices, slice_rows


@pytest.fixture
def folder(tmp_path):
    return Folder(str(tmp_path))


def test_slices_come_back_by_their_addresses(folder):
    spool = Spool(folder, "stage", "spool")
    for number in range(3):
        spool.add(pa.table({"x": [number, number]}))

    tables = [table for block in spool.addresses for table in read_slices(block)]
    assert [table["x"].to_pylist() for table in tables] == [[0, 0], [1, 1], [2, 2]]
    assert spool.num_rows == 6


def test_a_spool_begins_without_what_a_killed_process_left(folder):
    Spool(folder, "stage", "spool").add(pa.table({"x": [1]}))

    assert Spool(folder, "stage", "spool").addresses == []
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
