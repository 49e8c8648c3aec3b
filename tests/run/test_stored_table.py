"""Tables that stay on disk: written part by part, read in batches, and never seen half written."""

from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydebm.errors import PoolError
from raydebm.run.codec import Codec
from raydebm.run.directory import RunDir
from raydebm.run.stored_table import StoredTable


@dataclass(frozen=True)
class Named:
    name: str
    size: int = 0


@dataclass(frozen=True)
class OnlyName:
    name: str


NAMED = Codec(Named)
PARTS = ("names", "names.parquet")
RECORDS = [Named(f"n{number}", number) for number in range(2500)]


@pytest.fixture
def run(tmp_path):
    return RunDir(str(tmp_path / "run"))


@pytest.fixture
def table(run):
    run.write_records(NAMED, iter(RECORDS), *PARTS)
    return StoredTable(run, NAMED, PARTS)


def test_records_come_in_their_order_and_more_than_once(table):
    assert list(table) == RECORDS
    assert list(table) == RECORDS
    assert len(table) == 2500


def test_a_choice_is_made_while_reading(table):
    chosen = table.where(lambda record: record.size >= 2498)

    assert list(chosen) == RECORDS[2498:]
    assert len(chosen) == 2


def test_tables_have_the_rows_asked_for_also_across_row_groups(run):
    with run.open_table(NAMED, *PARTS) as writer:
        for first in range(0, 25_000, 5000):
            writer.write(pa.table({"name": ["n"] * 5000, "size": list(range(first, first + 5000))}))

    sizes = [table["size"].to_pylist() for table in StoredTable(run, NAMED, PARTS).tables(9000)]

    assert list(map(len, sizes)) == [9000, 9000, 7000]
    assert list(chain(*sizes)) == list(range(25_000))


def test_the_values_of_one_column(table):
    assert list(table.column("name")) == [record.name for record in RECORDS]


def test_a_folder_of_part_files_is_one_table_by_name(run):
    for number in (1, 0):
        run.write_records(NAMED, [Named(f"n{number}")], *PARTS, f"{number}.parquet")

    table = StoredTable(run, NAMED, PARTS)

    assert [record.name for record in table] == ["n0", "n1"]
    assert len(table) == 2


def test_a_column_that_is_missing_is_read_as_its_default(run):
    run.write_records(Codec(OnlyName), [OnlyName("a")], *PARTS)

    assert list(StoredTable(run, NAMED, PARTS)) == [Named("a", 0)]


def test_a_missing_table_says_so(run):
    with pytest.raises(PoolError, match=r"names/names\.parquet does not exist"):
        len(StoredTable(run, NAMED, PARTS))


def test_a_table_whose_pages_are_damaged_is_named(run, table, tmp_path):
    file = tmp_path / "run" / "names" / "names.parquet"
    content = bytearray(file.read_bytes())
    content[4:2000] = bytes(1996)
    file.write_bytes(content)

    with pytest.raises(PoolError, match=r"names\.parquet is not a readable Parquet table"):
        list(table)


def test_nothing_is_replaced_when_writing_fails(run, table):
    def broken():
        yield Named("new")
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError, match="the source is gone"):
        run.write_records(NAMED, broken(), *PARTS)

    assert list(table) == RECORDS
    assert run.names("names") == ["names.parquet"]


def test_a_written_table_replaces_what_was_read_before(run, table):
    assert len(run.read_records(NAMED, *PARTS)) == 2500

    run.write_records(NAMED, [Named("new")], *PARTS)

    assert run.read_records(NAMED, *PARTS) == (Named("new"),)


def test_small_parts_share_a_row_group(run, tmp_path):
    with run.open_table(NAMED, *PARTS) as writer:
        for number in range(9000):
            writer.write(pa.table({"name": ["n"], "size": [number]}))

    metadata = pq.ParquetFile(tmp_path / "run" / "names" / "names.parquet").metadata

    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [8192, 808]
