"""Shows, compares and changes the policies of a service while it goes on answering requests.

Files are read and written in a thread of its own, one call after the other.

Does not know: Ray, HTTP.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypedDict, TypeVar

from raydebm.decision.policy import Policy
from raydebm.decision.policy_file import check_fits
from raydebm.decision.policy_history import PolicyChange, PolicyHistory, SecondPolicy
from raydebm.decisions.paired import paired_decisions
from raydebm.decisions.reader import DecisionReader, Filter
from raydebm.decisions.storage.damage import UNREADABLE
from raydebm.errors import ConfigError, PoolError, RaydebmError, ServiceError
from raydebm.evaluation.studies.policy_pairs import compare_policies
from raydebm.run.directory import RunDir
from raydebm.serving.api.policies.policy_views import change_body, comparison_body, policies_body, second_body
from raydebm.serving.api.schema.policy_bodies import (
    ChangeBody,
    ComparisonBody,
    ComparisonQuery,
    PoliciesBody,
    TrialBody,
    TrialRequest,
)
from raydebm.serving.core.request import check_prices
from raydebm.serving.failures import BUSY_RETRY_S, TooManyError
from raydebm.serving.logs import redact
from raydebm.serving.settings.bundle import Bundle
from raydebm.tasks.base import Task

log = logging.getLogger(__name__)

T = TypeVar("T")
TakePolicies = Callable[[], Awaitable[None]]
MAX_WAITING = 8


class _Taken(TypedDict):
    """What became of a change in this replica, as ``ChangeBody`` says it."""

    applied: bool
    not_applied: str | None


class PolicyDesk:
    """The policies of one task's run. Belongs to one event loop."""

    def __init__(
        self, bundle: Bundle, reader: DecisionReader | None = None, take_policies: TakePolicies | None = None
    ) -> None:
        """
        Args:
            bundle: the run, alone.
            reader: its stored decisions; None: it stores none.
            take_policies: has this replica read the run's policies again; None: nothing does until the next change.
        """
        self._bundle, self._reader, self._take = bundle, reader, take_policies
        self._history = None if bundle.run_dir is None else PolicyHistory(RunDir(bundle.run_dir))
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="raydebm-policies")
        self._num_waiting = 0

    async def policies(self, tasks: Sequence[str]) -> PoliciesBody:
        """The policies that decide, and every change.

        Args:
            tasks: those of the service whose policies can be asked for, named along with them.

        Raises:
            ServiceError: 409 for a torn history, 503 where it cannot be read.
        """
        history = self._of_run()
        return policies_body(self._bundle, await self._in_thread(history.changes), tasks=tasks)

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
        # The store is the first run's, and other tasks' decisions lie in it too.
        where = Filter(task=self._bundle.tasks[0], since=query.since, until=query.until)

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

    async def try_policy(self, wanted: TrialRequest) -> TrialBody:
        """Put a policy on trial, now; it takes the place of the one that was.

        Raises:
            ServiceError: 400 for what is no policy of this task, 409 where a trial is not possible, 503 where it cannot
                be written.
        """
        try:
            policy = Policy.from_json(wanted.policy)
            check_fits(policy, self._bundle.recipe, self._task, what="the policy")
        except (ConfigError, KeyError, TypeError, ValueError) as error:
            words = str(error) if isinstance(error, ConfigError) else f"this is no policy: {error!r}"
            raise ServiceError(words, 400, "bad_policy", "policy") from error
        if wanted.percent > 0 and policy.max_usd is not None:
            check_prices(self._bundle, self._bundle.generators)

        def put(history: PolicyHistory) -> SecondPolicy:
            return history.try_policy(policy, percent=wanted.percent, reason=wanted.reason)

        history = self._changeable()
        second = await self._written(lambda: put(history))
        log.info("policy on trial", extra={"facts": {"policy": second.version, "percent": second.percent}})
        return TrialBody(second=second_body(self._bundle, second), **await self._taken(history))

    async def drop(self) -> TrialBody:
        """End the trial, now. Raises ServiceError 409 where no policy is on trial, 503 where it cannot be written."""
        history = self._changeable()
        await self._written(history.drop)
        return TrialBody(second=None, **await self._taken(history))

    def _changeable(self) -> PolicyHistory:
        """The history of a run whose changes count here. Raises ServiceError 409."""
        history = self._of_run()
        if not self._bundle.is_promotable:
            raise ServiceError(
                "this service is given its policy by the argument `policy`, so a change in the run directory would "
                "change nothing; take that argument out",
                409,
                "policy_is_given",
            )
        return history

    @property
    def _task(self) -> Task:
        return self._bundle.task(self._bundle.tasks[0])

    def _promoted(self, history: PolicyHistory, reason: str, key: str | None) -> PolicyChange:
        second = history.second()
        if second is not None:  # the file may be another one than the service has read
            check_fits(second.policy, self._bundle.recipe, self._task, what="the second policy")
        return history.promote(reason=reason, by=key)

    async def _changed(self, change: Callable[[PolicyHistory], PolicyChange]) -> ChangeBody:
        history = self._changeable()
        done = await self._written(lambda: change(history))
        log.info("policy changed", extra={"facts": {"action": done.action, "policy": done.version, "key": done.by}})
        return ChangeBody(change=change_body(done), **await self._taken(history))

    async def _written(self, change: Callable[[], T]) -> T:
        """What a change of the files returns. One that broke off may have been made: no client may repeat it by itself,
        for a second roll-back undoes another promotion."""
        try:
            return await self._in_thread(change)
        except ServiceError as error:
            if error.code != "policies_unavailable":
                raise
            message = f"{error}; GET /v1/policies shows whether the change was made"
            raise ServiceError(message, error.status, error.code, retry=False) from error

    async def _taken(self, history: PolicyHistory) -> _Taken:
        """Whether this replica decides by what was written; the others are told too. Raises nothing: what is written
        stays written, so that a client which took it for a failure would change it again."""
        if self._take is None:
            return {"applied": False, "not_applied": None}
        try:
            await self._in_thread(history.apply)
            await self._take()
        except Exception as error:
            is_ours = isinstance(error, RaydebmError)
            words = str(error) if is_ours else type(error).__name__
            log.error("change of policies not taken", exc_info=not is_ours, extra={"facts": {"reason": words}})
            return {"applied": False, "not_applied": redact(words)}
        return {"applied": True, "not_applied": None}

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
        except UNREADABLE as error:
            log.warning("policies or decisions cannot be read or written: %s", error)
            message = "policies or stored decisions cannot be read or written now; the service's log says why"
            raise ServiceError(message, 503, "policies_unavailable") from error
        finally:
            self._num_waiting -= 1
