"""Shows, compares and changes the policies of a service while it goes on answering requests.

Files are read and written in a thread of its own, one call after the other.

Does not know: Ray, HTTP.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa

from raydebm.decision.policy_file import check_fits
from raydebm.decision.policy_history import PolicyChange, PolicyHistory
from raydebm.decisions.paired import paired_decisions
from raydebm.decisions.reader import DecisionReader, Filter
from raydebm.errors import ConfigError, PoolError, RaydebmError, ServiceError
from raydebm.evaluation.studies.policy_pairs import compare_policies
from raydebm.run.directory import RunDir
from raydebm.serving.api.policies.policy_views import change_body, comparison_body, policies_body
from raydebm.serving.api.schema.policy_bodies import ChangeBody, ComparisonBody, ComparisonQuery, PoliciesBody
from raydebm.serving.failures import BUSY_RETRY_S, TooManyError
from raydebm.serving.settings.bundle import Bundle

log = logging.getLogger(__name__)

T = TypeVar("T")
TakePolicies = Callable[[], Awaitable[None]]
MAX_WAITING = 8


class PolicyDesk:
    """The policies of one service. Belongs to one event loop."""

    def __init__(
        self, bundle: Bundle, reader: DecisionReader | None = None, take_policies: TakePolicies | None = None
    ) -> None:
        """
        Args:
            bundle: what the service decides by.
            reader: its stored decisions; None: it stores none.
            take_policies: has this replica read the run's policies again; None: nothing does until the next change.
        """
        self._bundle, self._reader, self._take = bundle, reader, take_policies
        self._history = None if bundle.run_dir is None else PolicyHistory(RunDir(bundle.run_dir))
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="raydebm-policies")
        self._num_waiting = 0

    async def policies(self) -> PoliciesBody:
        """The policies that decide, and every change.

        Raises:
            ServiceError: 409 for a torn history, 503 where it cannot be read.
        """
        history = self._of_run()
        return policies_body(self._bundle, await self._in_thread(history.changes))

    async def comparison(self, query: ComparisonQuery) -> ComparisonBody:
        """The paired comparison of two policies.

        Raises:
            ServiceError: 400 for one id without the other; 404 where no decision of two policies is stored.
        """
        reader = self._reader
        if reader is None:
            raise ServiceError("this service stores no decisions; set `records`", 404, "no_records")
        if (query.first is None) != (query.second is None):
            raise ServiceError("give both `first` and `second`, or none of them", 400, "bad_pair", "first")
        versions = None if query.first is None or query.second is None else (query.first, query.second)
        where = Filter(since=query.since, until=query.until)

        def compare() -> ComparisonBody:
            pairs = paired_decisions(reader, self._bundle.task, where=where)
            try:
                return comparison_body(compare_policies(pairs, versions=versions, margin=query.margin))
            except PoolError as error:
                raise ServiceError(str(error), 404, "no_pairs") from error

        return await self._in_thread(compare)

    async def promote(self, *, reason: str, key: str | None) -> ChangeBody:
        """Make the second policy the first one, now.

        Raises:
            ServiceError: 409 where that is not possible, 503 where it cannot be written.
        """
        return await self._changed(lambda history: self._promoted(history, reason, key))

    async def roll_back(self, *, reason: str, key: str | None) -> ChangeBody:
        """Bring back the policy that the newest promotion replaced, now. Raises as ``promote``."""
        return await self._changed(lambda history: history.roll_back(reason=reason, by=key))

    def _promoted(self, history: PolicyHistory, reason: str, key: str | None) -> PolicyChange:
        second, recipe = history.second(), self._bundle.recipe
        if second is not None:  # the file may be another one than the service has read
            check_fits(second.policy, recipe, self._bundle.task(self._bundle.tasks[0]), what="the second policy")
        return history.promote(reason=reason, by=key)

    async def _changed(self, change: Callable[[PolicyHistory], PolicyChange]) -> ChangeBody:
        history = self._of_run()
        if not self._bundle.is_promotable:
            raise ServiceError(
                "this service is given its policy by the argument `policy`, so a change in the run directory would "
                "change nothing; take that argument out",
                409,
                "policy_is_given",
            )
        done = await self._in_thread(lambda: change(history))
        log.info("policy changed", extra={"facts": {"action": done.action, "policy": done.version, "key": done.by}})
        return ChangeBody(change=change_body(done), applied=await self._taken(history))

    async def _taken(self, history: PolicyHistory) -> bool:
        """Whether this replica decides by the changed policy; the others are told too."""
        if self._take is None:
            return False
        await self._in_thread(history.apply)
        try:
            await self._take()
        except RaydebmError as error:
            raise ServiceError(
                f"the policy was changed in the run directory, and this service could not take it: {error}",
                409,
                "policies_unusable",
            ) from error
        return True

    def _of_run(self) -> PolicyHistory:
        if self._history is None:
            raise ServiceError("this service has no run directory", 404, "no_run")
        return self._history

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._num_waiting >= MAX_WAITING:
            raise TooManyError(f"{MAX_WAITING} requests about policies wait here; try again", 503, BUSY_RETRY_S)
        self._num_waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except ConfigError as error:
            raise ServiceError(str(error), 409, "policies_unusable") from error
        except (OSError, pa.ArrowException) as error:
            log.warning("policies or decisions cannot be read or written: %s", error)
            message = "policies or stored decisions cannot be read or written now; the service's log says why"
            raise ServiceError(message, 503, "policies_unavailable") from error
        finally:
            self._num_waiting -= 1
