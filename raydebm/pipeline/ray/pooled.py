"""Tables through Ray tasks, in reused processes that have already imported torch.

An actor of Ray Data is a new process, which imports torch and transformers for seconds. Ray reuses the processes of
tasks, so small work and all scoring on CPUs run as tasks. GPU work does not: a process frees its GPU memory only at its
end.

Independent of: the content of the tables.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol, cast

import pyarrow as pa
import ray

from raydebm.pipeline.ray.session import get_or_raise


class TableWorker(Protocol):
    """Worker for tables: built once, called with one table at a time. The call may return a coroutine."""

    def __call__(self, table: pa.Table, /) -> Any: ...

    def close(self) -> None:
        """Free child processes and files; the process lives on without this worker."""
        ...


def in_tables(rows: Sequence[Mapping[str, Any]], *, schema: pa.Schema, size: int) -> Iterator[pa.Table]:
    """The rows in order, in tables of at most ``size`` rows, made lazily."""
    for first in range(0, len(rows), size):
        yield pa.Table.from_pylist(list(rows[first : first + size]), schema=schema)


def map_in_tasks(
    make: Callable[..., TableWorker],
    setup: Mapping[str, Any],
    tables: Iterable[pa.Table],
    *,
    num_cpus: float,
    num_at_once: int,
) -> Iterator[pa.Table]:
    """``make(**setup)(table)`` for each table, each in its own task; results in the order of the tables.

    Tables are read lazily, and results wait for earlier ones in Ray's object store, so that the driver holds only a
    few. The worker is built once per table, so tables should be worth that. Tasks of lost processes run again. If the
    caller stops or a task fails, running tasks are cancelled: a coroutine when its event loop next wakes up. If this
    process was started to ignore SIGINT, which Ray cancels with, they run to their end.

    Raises:
        RaydebmError: a worker raised it.
    """
    shared = ray.put(dict(setup))
    # `cast`: the type of ray.remote depends on its arguments.
    work = cast("Any", ray.remote(num_cpus=num_cpus)(_run))
    waiting = (work.remote(make, [shared], table) for table in tables)
    running, ordered = list[Any](), deque[Any]()
    try:
        while True:
            started = list(islice(waiting, num_at_once - len(running)))
            running += started
            ordered += started
            while ordered and ordered[0] not in running:
                yield get_or_raise(ordered.popleft())
            if not running:
                return
            _, running = ray.wait(running)
    finally:
        for reference in running:
            ray.cancel(reference)


def _run(make: Callable[..., TableWorker], shared: list[Any], table: pa.Table) -> pa.Table:
    worker = make(**ray.get(shared[0]))
    try:
        made = worker(table)
        return asyncio.run(made) if inspect.iscoroutine(made) else made
    finally:
        worker.close()
