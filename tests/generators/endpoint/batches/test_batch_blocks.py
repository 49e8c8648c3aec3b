"""Blocks from a generator that is waited for: windows of requests, places, and a wait that is given up."""

import asyncio
import threading
import time

import pyarrow as pa
import pytest

from raydebm.errors import GenerationError
from raydebm.generators.endpoint.batches.batch_blocks import awaited_blocks, windows
from raydebm.generators.requests import answered, request_row
from raydebm.run.folder import Folder
from raydebm.run.spool import Spool


class Echo:
    """Answers backwards, or never."""

    name = "g"

    def __init__(self, *, is_silent=False):
        self.is_silent, self.num_asked, self.is_closed = is_silent, [], False

    async def stream(self, requests):
        self.num_asked.append(len(requests))
        if self.is_silent:
            await asyncio.sleep(3600)
        for request in reversed(requests):
            yield answered(request, f"to {request.problem_id}")

    async def aclose(self):
        self.is_closed = True


def rows(ask, *places):
    return [request_row(ask(f"p{place}")) | {"position": place} for place in places]


def test_candidates_keep_the_places_of_their_requests(ask):
    generator = Echo()
    blocks = list(awaited_blocks(lambda: generator, [rows(ask, 7, 3), rows(ask, 5)], is_ending=threading.Event()))
    assert [list(zip(block["position"].to_pylist(), block["text"].to_pylist(), strict=True)) for block in blocks] == [
        [(3, "to p3"), (7, "to p7")],
        [(5, "to p5")],
    ]
    assert generator.num_asked == [2, 1]
    assert generator.is_closed


def test_a_wait_is_given_up_when_the_run_ends(ask, monkeypatch):
    monkeypatch.setattr("raydebm.generators.endpoint.batches.batch_blocks.LOOK_S", 0.01)
    generator, is_ending = Echo(is_silent=True), threading.Event()
    threading.Timer(0.1, is_ending.set).start()
    started = time.monotonic()
    with pytest.raises(GenerationError, match="the next one goes on with them"):
        list(awaited_blocks(lambda: generator, [rows(ask, 1)], is_ending=is_ending))
    assert time.monotonic() - started < 30
    assert generator.is_closed


@pytest.mark.parametrize(("size", "expected"), [(1, [2, 2, 1]), (3, [2, 3]), (5, [5])])
def test_windows_are_whole_slices(size, expected, tmp_path):
    spool = Spool(Folder(str(tmp_path)), "spool")
    for count in (2, 2, 1):
        spool.add(pa.table({"position": list(range(count))}))
    assert [len(window) for window in windows(spool, size)] == expected
