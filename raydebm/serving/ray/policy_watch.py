"""Notices that the policies of the run are to be taken at once, by whichever way they were changed.

An admin's request reaches one ingress replica, and the command line none. Both leave a number in the run directory
(``PolicyHistory.apply``), at which every replica looks every few seconds.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import pyarrow as pa

from raydebm.decision.policy_history import PolicyHistory
from raydebm.run.directory import RunDir

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
LOOK_FAR_EVERY_S = 30.0
"""At a run that does not lie on a disk: each look is a request to its store."""


class PolicyWatch:
    """Looks at the run directories of one replica's service. Belongs to one event loop."""

    def __init__(self, run_dirs: Sequence[str], *, every_s: float | None = None) -> None:
        """
        Args:
            run_dirs: of the runs.
            every_s: seconds between two looks; None: as suits the farthest run's address.
        """
        self._histories = {folder: PolicyHistory(RunDir(folder)) for folder in run_dirs}
        self._every_s = every_s
        self._seen: dict[str, int] = {}

    def look_at(self, run_dirs: Sequence[str]) -> None:
        """Look at these run directories from now on; what was asked for in new ones until now is not news. Blocks."""
        new = [folder for folder in run_dirs if folder not in self._histories]
        self._histories = {folder: PolicyHistory(RunDir(folder)) for folder in run_dirs}
        for folder in new:
            self._is_new(folder)

    def is_new(self) -> bool:
        """Whether a request to take the policies was made since the last look, or ever at the first one. Blocks."""
        return any([self._is_new(folder) for folder in list(self._histories)])  # a list, so that all are looked at

    def _is_new(self, folder: str) -> bool:
        try:
            number = self._histories[folder].applied()
        except (OSError, pa.ArrowException) as error:
            log.warning("the policies of %s cannot be looked at: %s", folder, error)
            return False
        seen = self._seen.get(folder, 0)
        self._seen[folder] = max(number, seen)
        return number > seen

    @property
    def _pause_s(self) -> float:
        if self._every_s is not None:
            return self._every_s
        return LOOK_EVERY_S if all(RunDir(folder).is_local for folder in self._histories) else LOOK_FAR_EVERY_S

    async def follow(self, take: Callable[[], Awaitable[None]]) -> None:
        """Calls ``take`` after each such request, forever."""
        while True:
            await asyncio.sleep(self._pause_s)
            if await asyncio.to_thread(self.is_new):
                await take()
