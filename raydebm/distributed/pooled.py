"""Tables through Ray tasks: in processes that stay, and have imported torch already.

An actor of Ray Data is a new process each time, which imports torch and transformers for seconds; the next stage does
so again. Ray keeps the processes of tasks and gives them the next one. So small work goes this way, and all scoring on
CPUs. Work on a GPU does not: what a process has taken of its memory is free again only when the process ends.

Does not know: what the tables hold.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol, cast

import pyarrow as pa
import ray

from raydebm.distributed.session import get_or_raise


class TableWorker(Protocol):
    """What Ray Data holds in an actor: built once there, called with a table at a time (a coroutine may be given)."""

    def __call__(self, table: pa.Table, /) -> Any: ...

    def close(self) -> None:
        """Let go of child processes and files; the process goes on without this worker."""
        ...


def in_tables(rows: Sequence[Mapping[str, Any]], *, schema: pa.Schema, size: int) -> Iterator[pa.Table]:
    """The rows in their order, at most ``size`` a table; each table is made when it is asked for."""
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
    """``make(**setup)(table)`` for each table, each in a task of its own; results as they come.

    A table is taken when a task can begin, so that no more are held than tasks run at once. The worker is built for
    each table, so tables should be worth that. A task whose process is lost runs again. Tasks that still run when the
    caller stops, or when one has failed, are cancelled: a coroutine when its event loop next wakes up.
    Where this process was started to ignore SIGINT, which Ray cancels with, they go on to their end.

    Raises:
        RaydebmError: what a worker raised.
    """
    shared = ray.put(dict(setup))
    # `cast`: ray.remote's type depends on how it is called.
    work = cast("Any", ray.remote(num_cpus=num_cpus)(_run))
    waiting = (work.remote(make, [shared], table) for table in tables)
    running = list(islice(waiting, num_at_once))
    try:
        while running:
            done, running = ray.wait(running)
            running += islice(waiting, len(done))
            for reference in done:
                yield get_or_raise(reference)
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
