"""The policies of a service: listed, tried, compared, promoted and rolled back, as typed calls.

Changing one needs the key of an admin; everybody else gets a ServiceError 403.
"""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

from raydebm_client.calls import Call, given
from raydebm_client.results import record, record_list

T = TypeVar("T")
PATH = "/v1/policies"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPolicy:
    """A policy that decides."""

    version: str
    """Its id, as in ``versions["policy"]`` of the answers that it gives."""
    policy_id: str
    """Its id below the service's ceilings and with its deadline, as in the list of decisions."""
    percent: float | None = None
    """Share of the problems that the policy on trial answers; 0: a shadow alone. None: the policy in force."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange:
    """One promotion or roll-back."""

    number: int
    time: str
    """ISO 8601, UTC."""
    action: str
    """``promote`` or ``rollback``."""
    reason: str
    by: str | None
    """Name of the API key; None: the command line."""
    version: str
    """The policy that came into force."""
    replaced: str
    undoes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPolicies:
    """The policies of one task."""

    first: ServedPolicy
    second: ServedPolicy | None
    """The policy on trial; None without one."""
    history: list[PolicyChange]
    """The newest change first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a trial began or ended with."""

    second: ServedPolicy | None
    applied: bool
    """Whether the replica that answered decides so from now on; the others follow within seconds."""
    not_applied: str | None = None
    """Why the replica that answered could not take what is written; None where it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedChange:
    """A promotion or roll-back, and whether it is in force."""

    change: PolicyChange
    applied: bool
    not_applied: str | None = None
    """See ``Trial``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """What one of two compared policies decided."""

    version: str
    decided: int
    answered: int
    coverage: float | None
    right: int
    wrong: int
    accuracy: float | None
    """Share of right ones among the answers with an outcome; ``accuracy_low`` to ``accuracy_high`` is its exact 95 %
    interval."""
    accuracy_low: float | None
    accuracy_high: float | None
    candidates: float | None
    cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyComparison:
    """Two policies on the same decisions."""

    first: PolicyFigures
    second: PolicyFigures
    num_decisions: int
    num_outcomes: int
    agreement: float | None
    right: dict[str, Any]
    """``difference`` (value, low, high, n) of the share of right answers, the second minus the first, and ``p_value``;
    so in ``wrong`` and ``answered``."""
    wrong: dict[str, Any]
    answered: dict[str, Any]
    outcomes_needed: int | None
    """Outcomes more that would show a difference of ``margin`` with probability 0.8."""
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)
    """The whole body."""


def list_call(task: str | None) -> Call[ServedPolicies]:
    return Call(path=PATH, query=given({"task": task}), read=_policies)


def compare_call(
    task: str | None, since: datetime | None, until: datetime | None, margin: float | None
) -> Call[PolicyComparison]:
    times = {name: None if time is None else time.isoformat() for name, time in (("since", since), ("until", until))}
    query = given({"task": task, "margin": margin, **times})
    return Call(path=f"{PATH}/comparison", query=query, read=_comparison)


def try_call(policy: Mapping[str, Any], percent: float, reason: str, task: str | None) -> Call[Trial]:
    body = given({"policy": dict(policy), "percent": percent, "reason": reason, "task": task})
    return Call(path=f"{PATH}/try", body=body, read=_trial)


def drop_call(task: str | None) -> Call[Trial]:
    return Call(path=f"{PATH}/drop", body=given({"task": task}), read=_trial)


def change_call(action: str, reason: str, task: str | None) -> Call[AppliedChange]:
    return Call(path=f"{PATH}/{action}", body=given({"reason": reason, "task": task}), read=_change)


class Do(Protocol):
    """Makes one call."""

    def __call__(self, call: Call[T], /) -> T: ...


class AsyncDo(Protocol):
    """Makes one call, for asyncio."""

    def __call__(self, call: Call[T], /) -> Awaitable[T]: ...


class Policies:
    """``Raydebm.policies``. ``task`` is a served task; None: the first one. Methods raise as the client's do."""

    def __init__(self, do: Do) -> None:
        self._do = do

    def list(self, *, task: str | None = None) -> ServedPolicies:
        """The policy in force, the one on trial, and every change."""
        return self._do(list_call(task))

    def compare(
        self,
        *,
        task: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        margin: float | None = None,
    ) -> PolicyComparison:
        """A paired test of the two policies of the newest decision.

        Args:
            task: whose policies.
            since: decisions at or after; with a time zone.
            until: decisions before; with a time zone.
            margin: difference in the share of right answers for which ``outcomes_needed`` is computed; None: 0.05.
        """
        return self._do(compare_call(task, since, until, margin))

    def try_policy(
        self, policy: Mapping[str, Any], *, percent: float = 0.0, reason: str = "", task: str | None = None
    ) -> Trial:
        """Have a policy decide next to the one in force.

        Args:
            policy: as ``calibration/policy.json`` holds one.
            percent: share of the problems that it answers, as a canary; 0: a shadow, which answers none.
            reason: kept with it.
            task: whose policy.
        """
        return self._do(try_call(policy, percent, reason, task))

    def drop(self, *, task: str | None = None) -> Trial:
        """End the trial."""
        return self._do(drop_call(task))

    def promote(self, *, reason: str = "", task: str | None = None) -> AppliedChange:
        """Make the policy on trial the one in force."""
        return self._do(change_call("promote", reason, task))

    def roll_back(self, *, reason: str = "", task: str | None = None) -> AppliedChange:
        """Bring the policy back that the newest promotion replaced."""
        return self._do(change_call("rollback", reason, task))


class AsyncPolicies:
    """``AsyncRaydebm.policies``: as ``Policies``, for asyncio."""

    def __init__(self, do: AsyncDo) -> None:
        self._do = do

    async def list(self, *, task: str | None = None) -> ServedPolicies:
        """See ``Policies``; so are all others."""
        return await self._do(list_call(task))

    async def compare(
        self,
        *,
        task: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        margin: float | None = None,
    ) -> PolicyComparison:
        """See ``Policies.compare``."""
        return await self._do(compare_call(task, since, until, margin))

    async def try_policy(
        self, policy: Mapping[str, Any], *, percent: float = 0.0, reason: str = "", task: str | None = None
    ) -> Trial:
        """See ``Policies.try_policy``."""
        return await self._do(try_call(policy, percent, reason, task))

    async def drop(self, *, task: str | None = None) -> Trial:
        """End the trial."""
        return await self._do(drop_call(task))

    async def promote(self, *, reason: str = "", task: str | None = None) -> AppliedChange:
        """Make the policy on trial the one in force."""
        return await self._do(change_call("promote", reason, task))

    async def roll_back(self, *, reason: str = "", task: str | None = None) -> AppliedChange:
        """Bring the policy back that the newest promotion replaced."""
        return await self._do(change_call("rollback", reason, task))


def _policies(body: Mapping[str, Any]) -> ServedPolicies:
    second = body.get("second")
    return record(
        ServedPolicies,
        body,
        first=record(ServedPolicy, body.get("first")),
        second=None if second is None else record(ServedPolicy, second),
        history=[record(PolicyChange, change) for change in record_list(body, "history")],
    )


def _trial(body: Mapping[str, Any]) -> Trial:
    second = body.get("second")
    return record(Trial, body, second=None if second is None else record(ServedPolicy, second))


def _change(body: Mapping[str, Any]) -> AppliedChange:
    return record(AppliedChange, body, change=record(PolicyChange, body.get("change")))


def _comparison(body: Mapping[str, Any]) -> PolicyComparison:
    figures = {name: record(PolicyFigures, body.get(name)) for name in ("first", "second")}
    return record(PolicyComparison, body, raw=body, **figures)
