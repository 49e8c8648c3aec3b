"""Notices that the policies of the run are to be taken at once, whichever replica was asked to.

An admin's request reaches one ingress replica. It leaves a number in the run directory (``PolicyHistory.apply``), at
which every replica looks every few seconds.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pyarrow as pa

from raydebm.decision.policy_history import PolicyHistory
from raydebm.run.directory import RunDir

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
LOOK_FAR_EVERY_S = 30.0
"""At a run that does not lie on a disk: each look is a request to its store."""


class PolicyWatch:
    """Looks at the run directory of one replica's service. Belongs to one event loop."""

    def __init__(self, run_dir: str, *, every_s: float | None = None) -> None:
        """
        Args:
            run_dir: of the run.
            every_s: seconds between two looks; None: as suits the run's address.
        """
        run = RunDir(run_dir)
        self._history = PolicyHistory(run)
        self._every_s = every_s or (LOOK_EVERY_S if run.is_local else LOOK_FAR_EVERY_S)
        self._seen = 0

    def is_new(self) -> bool:
        """Whether a request to take the policies was made since the last look, or ever at the first one. Blocks."""
        try:
            number = self._history.applied()
        except (OSError, pa.ArrowException) as error:
            log.warning("the run's policies cannot be looked at: %s", error)
            return False
        is_new, self._seen = number > self._seen, max(number, self._seen)
        return is_new

    async def follow(self, take: Callable[[], Awaitable[None]]) -> None:
        """Calls ``take`` after each such request, forever."""
        while True:
            await asyncio.sleep(self._every_s)
            if await asyncio.to_thread(self.is_new):
                await take()
