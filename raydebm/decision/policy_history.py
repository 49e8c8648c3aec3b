"""The policies of a run in production: the one in force, the one on trial, and those that were replaced.

    calibration/policy.json      the first policy: calibration writes it, a promotion or a roll-back replaces it
    policies/second.json         the second policy, with the share of traffic that it answers
    policies/0001.json ...       a change each: when, why, what was replaced, as a whole

A change is written down before the policy is replaced, so a process that dies in between loses neither policy. Each
file is replaced as a whole, so readers see the old one or the new one. One change at a time: what reads the policies
and replaces them holds a lock of the kernel on ``policies/.lock`` (``run.file_lock``), so that replicas and the command
line overwrite no entry of each other. A run directory behind a URL, and one on a file system without locks, has none.
"""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, get_args

from raydebm.decision.policy import Policy, policy_id
from raydebm.decision.policy_file import policy_in_force
from raydebm.errors import ConfigError
from raydebm.run.directory import RunDir
from raydebm.run.file_lock import locked

FOLDER = "policies"
SECOND = "second.json"
APPLIED = "applied.json"
LOCK_FILE = ".lock"
_ENTRY = re.compile(r"(\d{4,})\.json")
Action = Literal["promote", "rollback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondPolicy:
    """A policy that is tried on live traffic, next to the first one."""

    policy: Policy
    percent: float = 0.0
    """Share of the traffic that it answers, 0 to 100; with 0 it is a shadow alone."""
    time: datetime
    """When it was put there, UTC."""
    reason: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.percent <= 100:  # NaN too
            raise ConfigError(f"percent must be between 0 (a shadow alone) and 100, got {self.percent:g}")

    @property
    def version(self) -> str:
        """Id of the policy."""
        return policy_id(self.policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange:
    """One promotion or roll-back."""

    number: int
    """1 is the first change."""
    time: datetime
    action: Action
    reason: str
    by: str | None
    """Name of the API key that asked for it; None: the command line."""
    version: str
    """Id of the policy that came into force."""
    replaced: Policy
    """The policy that was in force until then."""
    undoes: int | None = None
    """The promotion that a roll-back undid."""


P = ParamSpec("P")
T = TypeVar("T")


def _alone(
    change: Callable[Concatenate["PolicyHistory", P], T],
) -> Callable[Concatenate["PolicyHistory", P], T]:
    """A change of the files, made while no other process or thread makes one."""

    @wraps(change)
    def made_alone(history: "PolicyHistory", /, *args: P.args, **kwargs: P.kwargs) -> T:
        with ExitStack() as stack:
            if history._run.is_local:
                _lock(Path(history._run.root) / FOLDER, stack)
            return change(history, *args, **kwargs)

    return made_alone


def _lock(folder: Path, stack: ExitStack) -> None:
    """Hold the folder's lock until the stack ends; wait for who has it. Nothing where it cannot be had: whatever is
    written there says so itself."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    descriptor = locked(folder / LOCK_FILE, wait=True)
    if descriptor is not None:
        stack.callback(os.close, descriptor)


class PolicyHistory:
    """Reads and changes the policies of one run."""

    def __init__(self, run: RunDir) -> None:
        self._run = run

    # ---- reading -----------------------------------------------------------------------------------------------

    def first(self) -> Policy:
        """The policy in force.

        Raises:
            ConfigError: calibration/policy.json is missing or is no policy.
        """
        return policy_in_force(self._run)

    def second(self) -> SecondPolicy | None:
        """The policy on trial; None without one.

        Raises:
            ConfigError: its file is torn or wrong.
        """
        value = self._read(SECOND, remedy="write it again with `raydebm policies try`, or remove it by `drop`")
        if value is None:
            return None
        where = self._run.uri(FOLDER, SECOND)
        try:
            return SecondPolicy(
                policy=Policy.from_json(value["policy"]),
                percent=float(value["percent"]),
                time=datetime.fromisoformat(value["time"]),
                reason=str(value["reason"]),
            )
        except (ConfigError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"{where} is not a second policy: {error!r}; write it again with `raydebm policies try`, or remove it "
                "by `raydebm policies drop`"
            ) from error

    def changes(self) -> list[PolicyChange]:
        """Every promotion and roll-back, the oldest first.

        Raises:
            ConfigError: a file of the history is torn or wrong.
        """
        return [self._change(number) for number in self._numbers()]

    def _numbers(self) -> list[int]:
        """In rising order."""
        names = map(_ENTRY.fullmatch, self._run.names(FOLDER))
        return sorted(int(match[1]) for match in names if match is not None)

    def _change(self, number: int) -> PolicyChange:
        name = _file_of(number)
        where = self._run.uri(FOLDER, name)
        remedy = "restore the file, or move it away: what it replaced can then not be brought back"
        value = self._read(name, remedy=remedy)
        try:
            if value is None or value["action"] not in get_args(Action):
                raise ValueError("no action")
            return PolicyChange(
                **{
                    **value,
                    "number": number,
                    "time": datetime.fromisoformat(value["time"]),
                    "replaced": Policy.from_json(value["replaced"]),
                }
            )
        except (ConfigError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{where} is not a change of a policy: {error!r}; {remedy}") from error

    def _read(self, name: str, *, remedy: str) -> Mapping[str, Any] | None:
        return self._run.read_object(FOLDER, name, remedy=remedy)

    # ---- changing ----------------------------------------------------------------------------------------------

    @_alone
    def try_policy(self, policy: Policy, *, percent: float, reason: str = "") -> SecondPolicy:
        """Put a policy on trial; it takes the place of the one that was on trial.

        Raises:
            ConfigError: a share outside of 0 to 100; the policy is the one in force.
        """
        second = SecondPolicy(policy=policy, percent=percent, time=_now(), reason=reason)
        if second.version == policy_id(self.first()):
            raise ConfigError(f"policy {second.version} is in force already, so there is nothing to try")
        value = {"policy": policy.to_json(), "percent": percent, "time": second.time.isoformat(), "reason": reason}
        self._run.write_json(value, FOLDER, SECOND)
        return second

    @_alone
    def drop(self) -> None:
        """End the trial, whatever its file holds.

        Raises:
            ConfigError: no policy is on trial.
        """
        if not self._run.exists(FOLDER, SECOND):
            raise ConfigError(f"no policy is on trial in {self._run.root}")
        self._run.remove(FOLDER, SECOND)

    @_alone
    def promote(self, *, reason: str = "", by: str | None = None) -> PolicyChange:
        """Make the second policy the first one.

        Raises:
            ConfigError: no policy is on trial, or it is in force already.
        """
        second = self.second()
        if second is not None and second.version == policy_id(self.first()):
            raise ConfigError(f"policy {second.version} is in force already; `raydebm policies drop` ends its trial")
        if second is None:
            raise ConfigError(
                f"no policy is on trial in {self._run.root}, so there is nothing to promote; "
                "`raydebm policies try POLICY.json --percent 5` starts a canary"
            )
        change = self._replace(second.policy, "promote", reason=reason, by=by)
        self._run.remove(FOLDER, SECOND)
        return change

    @_alone
    def roll_back(self, *, reason: str = "", by: str | None = None) -> PolicyChange:
        """Bring the policy back that the newest promotion replaced; another roll-back undoes the promotion before it.

        Raises:
            ConfigError: the policy in force is the first of all.
        """
        promotions: list[PolicyChange] = []
        for change in self.changes():
            if change.action == "promote":
                promotions.append(change)
            else:
                promotions = [promotion for promotion in promotions if promotion.number != change.undoes]
        if not promotions:
            raise ConfigError(
                f"the policy in force in {self._run.root} is the first one: no promotion is left to roll back; "
                "`raydebm policies list` shows the history, and `raydebm calibrate` makes another policy"
            )
        undone = promotions[-1]
        return self._replace(undone.replaced, "rollback", reason=reason, by=by, undoes=undone.number)

    def _replace(
        self, policy: Policy, action: Action, *, reason: str, by: str | None, undoes: int | None = None
    ) -> PolicyChange:
        change = PolicyChange(
            number=max(self._numbers(), default=0) + 1,
            time=_now(),
            action=action,
            reason=reason,
            by=by,
            version=policy_id(policy),
            replaced=self.first(),
            undoes=undoes,
        )
        value = {
            **{name: getattr(change, name) for name in ("action", "reason", "by", "version", "undoes")},
            "time": change.time.isoformat(),
            "replaced": change.replaced.to_json(),
        }
        self._run.write_json(value, FOLDER, _file_of(change.number))
        self._run.write_json(policy.to_json(), "calibration", "policy.json")
        return change

    # ---- telling running services ------------------------------------------------------------------------------

    @_alone
    def apply(self) -> int:
        """Ask running services to take the policies as they are now; returns the number of the request."""
        number = self.applied() + 1
        self._run.write_json({"number": number, "time": _now().isoformat()}, FOLDER, APPLIED)
        return number

    def applied(self) -> int:
        """The newest request of ``apply``; 0 without any. A torn file counts as none."""
        try:
            value = self._read(APPLIED, remedy="")
        except ConfigError:
            return 0
        number = (value or {}).get("number", 0)
        return number if isinstance(number, int) else 0


def _file_of(number: int) -> str:
    return f"{number:04d}.json"


def _now() -> datetime:
    return datetime.now(UTC)
