"""What lists show is read once for each file, and never more of it is kept than allowed."""

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from raydebm.decisions.reader import DecisionReader, Filter
from raydebm.decisions.record import DECISIONS, SUMMARY
from raydebm.decisions.storage import index as index_module
from raydebm.decisions.storage.file_names import file_name
from raydebm.decisions.storage.index import SummaryIndex

NOON = 1_780_000_000_000_000


def row(index, **changes):
    """A decision with as little as a list needs."""
    empty = {field.name: None for field in DECISIONS}
    time = datetime.fromtimestamp(NOON / 1e6 + index, UTC)
    return {
        **empty,
        "record_id": f"{NOON + 10**6 * index:016x}{index:08x}",
        "time": time,
        "task": "t",
        "decision": "accept",
        **changes,
    }


@pytest.fixture
def write(tmp_path):
    """Writes one file of rows; returns its path."""

    def write(rows, *, number=0, schema=DECISIONS):
        name = file_name(NOON + number, NOON + number, writer="a", sequence=number, level=0)
        table = pa.Table.from_pylist(rows, schema=DECISIONS).select(schema.names)
        pq.write_table(table, tmp_path / name)
        return str(tmp_path / name)

    return write


@pytest.fixture
def index():
    return SummaryIndex(fs.LocalFileSystem())


@pytest.fixture
def reads(monkeypatch):
    """Paths of the files that are read."""
    paths, real = [], SummaryIndex._read
    monkeypatch.setattr(SummaryIndex, "_read", lambda self, path: paths.append(path) or real(self, path))
    return paths


def test_a_file_is_read_once(index, write, reads):
    paths = [write([row(0)], number=0), write([row(1)], number=1)]
    for _ in range(3):
        assert index.table(paths, known=paths).num_rows == 2
    assert sorted(reads) == paths


def test_a_file_that_is_gone_is_forgotten(index, write, reads):
    paths = [write([row(0)], number=0), write([row(1)], number=1)]
    index.table(paths, known=paths)
    index.table(paths[1:], known=paths[1:])
    index.table(paths, known=paths)
    assert reads.count(paths[0]) == 2
    assert reads.count(paths[1]) == 1


def test_a_file_that_is_not_wanted_now_is_kept(index, write, reads):
    paths = [write([row(0)], number=0), write([row(1)], number=1)]
    index.table(paths, known=paths)
    index.table(paths[1:], known=paths)
    index.table(paths, known=paths)
    assert len(reads) == 2


def test_beyond_the_bound_the_oldest_are_read_anew(index, write, reads, monkeypatch):
    paths = [write([row(0)], number=0), write([row(1)], number=1)]
    monkeypatch.setattr(index_module, "MAX_BYTES", index._read(paths[1]).nbytes)
    reads.clear()
    for _ in range(2):
        assert index.table(paths, known=paths).num_rows == 2
    assert reads.count(paths[0]) == 2
    assert reads.count(paths[1]) == 1


def test_answers_and_reasons_are_cut(index, write):
    path = write([row(0, answer="ä" * 500, reason=None)])
    table = index.table([path], known=[path])
    assert table["answer"].to_pylist() == ["ä" * 200]
    assert table["reason"].to_pylist() == [None]


def test_a_file_without_a_newer_column_is_listed_and_filtered(write, tmp_path):
    older = pa.schema([field for field in DECISIONS if field.name != "generator"])
    write([row(0)], number=0, schema=older)
    write([row(1, generator="ada")], number=1)
    reader = DecisionReader(str(tmp_path))
    assert [decision["generator"] for decision in reader.page().rows] == ["ada", None]
    assert reader.count(Filter(generator="ada")) == 1
    assert [batch.num_rows for batch in reader.batches(["task"], Filter(generator="ada")) if batch.num_rows] == [1]


def test_no_file_is_an_empty_table(index):
    assert index.table([], known=[]).schema == SUMMARY
