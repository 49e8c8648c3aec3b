"""The table of candidates while it is being made."""

import pyarrow as pa
import pytest

from raydebm.generators.journal import Journal
from raydebm.generators.requests import answered
from raydebm.generators.sink import WITH_POSITION, CandidateSink
from raydebm.run.tables import CANDIDATES


@pytest.fixture
def requests(ask):
    return [ask(sample_index=index) for index in range(6)]


def sink_in(folder, **options):
    return CandidateSink(folder, **({"total": 6, "on_progress": None} | options))


def texts(sink):
    return [text for table in sink.tables() for text in table["text"].to_pylist()]


def test_candidates_come_back_in_the_order_of_their_requests(tmp_path, requests):
    sink = sink_in(tmp_path)
    for position in (3, 0, 5, 1):
        sink.write_candidates([(position, answered(requests[position], f"text {position}"))])

    assert texts(sink) == ["text 0", "text 1", "text 3", "text 5"]
    assert sink.tally.num_ok == 4


def test_blocks_are_counted_and_told(tmp_path, requests):
    told = []
    sink = sink_in(tmp_path, on_progress=lambda done, total: told.append((done, total)))

    def blocks():
        for first in (4, 0):
            rows = [
                CANDIDATES.row(answered(requests[position], f"text {position}")) | {"position": position}
                for position in (first, first + 1)
            ]
            yield pa.Table.from_pylist(rows, schema=WITH_POSITION)

    sink.consume(blocks())

    assert texts(sink) == ["text 0", "text 1", "text 4", "text 5"]
    assert told == [(2, 6), (4, 6)]


def test_what_the_journal_holds_is_written_and_the_rest_is_given_back(tmp_path, requests):
    journal = Journal(tmp_path / "journal")
    journal.put(answered(requests[1], "text 1"))
    (tmp_path / "rows").mkdir()
    sink = sink_in(tmp_path / "rows")

    missing = sink.write_reused(list(enumerate(requests[:3])), journal)

    assert [position for position, _ in missing] == [0, 2]
    assert texts(sink) == ["text 1"]
    assert sink.tally.num_reused == 1


def test_what_is_new_is_read_once(tmp_path, requests):
    sink = sink_in(tmp_path, reads_new=True)
    sink.write_candidates([(0, answered(requests[0], "text 0"))])
    sink.read_new()
    sink.write_candidates([(1, answered(requests[1], "text 1"))])

    assert [candidate.text for candidate in sink.read_new()] == ["text 1"]
    assert sink.read_new() == []
