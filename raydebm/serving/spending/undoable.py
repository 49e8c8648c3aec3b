"""Work in a thread that a cancelled request takes back.

Does not know: files, requests, Ray, HTTP.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from raydebm.errors import RaydebmError

log = logging.getLogger(__name__)

T = TypeVar("T")


async def done_or_undone(do: Callable[[], T], undo: Callable[[T], object]) -> T:
    """The result of work in a thread, which cannot be cancelled: where the caller is, the work ends all the same, and
    what it did is undone, for no one else knows of it.

    Args:
        do: the work.
        undo: takes its result back, in a thread too.
    """
    loop = asyncio.get_running_loop()
    work = loop.run_in_executor(None, do)

    def take_back(done: "asyncio.Future[T]") -> None:
        if not done.cancelled() and done.exception() is None:
            loop.run_in_executor(None, _undo, undo, done.result())

    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        work.add_done_callback(take_back)
        raise


def _undo(undo: Callable[[T], object], result: T) -> None:
    try:
        undo(result)
    except RaydebmError as error:
        log.error("work of a cancelled request was not undone", extra={"facts": {"reason": str(error)}})
