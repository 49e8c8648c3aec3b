"""Tables through Ray tasks."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pyarrow as pa
import pytest

from raydebm.errors import CheckpointError
from raydebm.pipeline.ray.pooled import map_in_tasks

pytestmark = pytest.mark.ray


class Doubler:
    """Doubles column x; writes its process and its end into a folder."""

    def __init__(self, *, folder):
        self._folder = Path(folder)

    def __call__(self, table):
        doubled = [2 * value for value in table["x"].to_pylist()]
        return pa.table({"x": doubled, "pid": [os.getpid()] * len(doubled)})

    def close(self):
        (self._folder / f"closed-{len(list(self._folder.iterdir()))}").touch()


class LaterDoubler(Doubler):
    async def __call__(self, table):
        return super().__call__(table)


class Refuser(Doubler):
    def __call__(self, table):
        raise CheckpointError("adapter a1 is missing")


class Waiter(Doubler):
    """Says when it has begun, and waits far longer than a test."""

    async def __call__(self, table):
        (self._folder / f"begun-{table['x'][0].as_py()}").touch()
        for _ in range(6000 * table["x"][0].as_py()):
            await asyncio.sleep(0.1)  # the cancellation is seen when the loop wakes up
        return super().__call__(table)


class DiesOnce(Doubler):
    def __call__(self, table):
        trace = self._folder / "died"
        if not trace.exists():
            trace.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(table)


def run(kind, tmp_path, *, num_tables, num_at_once=1):
    tables = [pa.table({"x": [number]}) for number in range(num_tables)]
    return list(map_in_tasks(kind, {"folder": str(tmp_path)}, tables, num_cpus=1, num_at_once=num_at_once))


@pytest.mark.parametrize("kind", [Doubler, LaterDoubler])
def test_every_table_goes_through_a_worker(local_ray, tmp_path, kind):
    tables = run(kind, tmp_path, num_tables=5, num_at_once=2)

    assert [table["x"][0].as_py() for table in tables] == [0, 2, 4, 6, 8]


def test_a_process_serves_one_table_after_another_and_each_worker_is_closed(local_ray, tmp_path):
    tables = run(Doubler, tmp_path, num_tables=3)

    assert len({table["pid"][0].as_py() for table in tables}) == 1
    assert len(list(tmp_path.iterdir())) == 3


def test_a_table_is_taken_when_a_task_can_begin(local_ray, tmp_path):
    taken = []

    def tables():
        for number in range(6):
            taken.append(number)
            yield pa.table({"x": [number]})

    done = map_in_tasks(Doubler, {"folder": str(tmp_path)}, tables(), num_cpus=1, num_at_once=1)
    next(done)

    assert taken == [0, 1]


def test_an_error_of_our_own_comes_out_as_itself_and_the_worker_is_closed(local_ray, tmp_path):
    with pytest.raises(CheckpointError, match="adapter a1 is missing"):
        run(Refuser, tmp_path, num_tables=1)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.skipif(
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN, reason="workers inherit that SIGINT is ignored, and Ray sends it"
)
def test_what_still_runs_when_the_caller_stops_is_cancelled_and_closed(local_ray, tmp_path):
    tables = [pa.table({"x": [number]}) for number in range(2)]
    done = map_in_tasks(Waiter, {"folder": str(tmp_path)}, tables, num_cpus=1, num_at_once=2)
    next(done)
    wait_for(tmp_path, "begun-1")

    done.close()

    wait_for(tmp_path, "closed-*", count=2)


def wait_for(folder, pattern, *, count=1):
    end = time.monotonic() + 240
    while len(list(folder.glob(pattern))) < count:
        assert time.monotonic() < end, f"{pattern} did not come"
        time.sleep(0.05)


def test_a_table_whose_process_is_killed_runs_again(local_ray, tmp_path):
    (table,) = run(DiesOnce, tmp_path, num_tables=1)

    assert table["x"].to_pylist() == [0]
