"""Every exception that raydebm raises on purpose.

RaydebmError
├── ConfigError          a recipe, flag or request is wrong: fix the input
│   ├── UnknownNameError a name that is not in a table; the message lists the known ones
│   └── MissingKeyError  an API key is not in the environment
├── ConstraintError      a constraint is declared wrongly, or gave something that is not a penalty
├── TaskDataError        benchmark data or a recorded pool is not as described
├── PoolError            a pool cannot be used: empty, all rows failed, nothing to pair
├── GenerationError      a generator as a whole cannot work (one bad row is data, not this)
│   └── LimitReachedError a limit of the request (money) forbids a pass
│       └── CeilingReachedError what may be spent on one day is spent
├── ScoringError         the scorer produced something that is not an energy (NaN, wrong shape)
├── CheckpointError      a checkpoint is missing, torn, or mixes incompatible parts
├── TrainingError        one or more adapters could not be trained; the finished ones are kept
│   └── StorageError     a disk takes nothing more of a training: full, read-only, another user's
├── ResourceError        Ray, a port or the cluster cannot give what the recipe asks for
└── ServiceError         a request to the service cannot be answered

Messages say which thing, what value, and the remedy. Every argument goes to ``super().__init__``, because an
exception that crosses a Ray process boundary is rebuilt from ``args``.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches

_CREDENTIALS = re.compile(r"://[^/?#\s\"']+@")


class RaydebmError(Exception):
    """Base of everything a caller may want to catch."""


class ConfigError(RaydebmError):
    """The input (recipe, flag, request) is wrong; the message says how to fix it."""


class UnknownNameError(ConfigError):
    """A name that is not in a table, such as ``gms8k`` among the tasks."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known_names = tuple(sorted(known))
        super().__init__(kind, name, known_names)
        self.kind, self.name, self.known = kind, name, known_names

    def __str__(self) -> str:
        close = get_close_matches(self.name, self.known, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        return f"unknown {self.kind} {self.name!r}{hint}; known: {', '.join(self.known) or 'none'}"


class MissingKeyError(ConfigError):
    """A generator needs an API key that the environment does not hold."""

    def __init__(self, generator: str, variable: str) -> None:
        super().__init__(generator, variable)
        self.generator, self.variable = generator, variable

    def __str__(self) -> str:
        return (
            f"generator {self.generator!r} needs an API key: environment variable {self.variable} is not set; "
            f"run `export {self.variable}=...` or change the generator's `api_key_env`"
        )


class ConstraintError(RaydebmError):
    """A constraint is declared wrongly, or its check gave something that is not a penalty."""


class TaskDataError(RaydebmError):
    """Benchmark data or a recorded pool is missing, unreadable or not as described."""


class PoolError(RaydebmError):
    """A candidate pool cannot be used: it is empty, all of it failed, or nothing in it can be paired."""


class GenerationError(RaydebmError):
    """A generator as a whole cannot work. A single failed request is a row with ``error``, not this."""


class LimitReachedError(GenerationError):
    """A limit of the request forbids a pass; nothing of it was asked."""


class CeilingReachedError(LimitReachedError):
    """An operator's ceiling of the day forbids a pass; nothing of it was asked."""


class ScoringError(RaydebmError):
    """The scorer produced something that is not an energy (NaN, infinity, wrong shape)."""


class CheckpointError(RaydebmError):
    """A checkpoint is missing, torn, or mixes parts that do not belong together."""


class TrainingError(RaydebmError):
    """Some adapters could not be trained; the finished ones are kept on disk."""

    def __init__(self, failed: dict[str, str], finished: tuple[str, ...]) -> None:
        super().__init__(failed, finished)
        self.failed, self.finished = failed, finished

    def __str__(self) -> str:
        by_reason: dict[str, list[str]] = {}
        for name, reason in sorted(self.failed.items()):
            by_reason.setdefault(reason, []).append(name)
        reasons = "; ".join(f"{', '.join(failed)}: {reason}" for reason, failed in by_reason.items())
        names = ", ".join(self.finished) or "none"
        return f"training failed for {reasons}. Finished adapters kept: {names}. Run the same command again to resume"


class StorageError(TrainingError):
    """A disk takes nothing more of a training: it is full, read-only or another user's. What it refuses to one adapter
    it refuses to all."""


class ResourceError(RaydebmError):
    """Ray, a port or the cluster cannot give what the recipe asks for."""


class ServiceError(RaydebmError):
    """A request to the service cannot be answered.

    Args:
        message: which thing, what value, the remedy.
        status: the HTTP status that it becomes.
        code: a short name that clients can switch on, such as ``"model_not_found"``.
        param: the field of the request that is at fault.
        retry: False where the same request would cost as much again and hardly do better.
    """

    def __init__(
        self,
        message: str,
        status: int = 400,
        code: str = "invalid_request",
        param: str | None = None,
        retry: bool = True,
    ) -> None:
        super().__init__(message, status, code, param, retry)
        self.message, self.status, self.code, self.param, self.retry = message, status, code, param, retry

    def __str__(self) -> str:
        return self.message


def without_credentials(message: str) -> str:
    """The message without user and password of addresses, such as ``http://user:password@host``."""
    return _CREDENTIALS.sub("://***@", message)


def last_line(message: str) -> str:
    """What Ray hands back of a worker's error is a traceback; the exception stands in its last line."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a computation had too little memory, on a device or in the machine; torch need not be imported to ask."""
    names = {base.__name__ for base in type(error).__mro__}
    return bool(names & {"OutOfMemoryError", "MemoryError"}) or "can't allocate memory" in str(error)


def in_one_line(message: str, *, limit: int = 300) -> str:
    """A message of another package's error, whose first line is often the least of it."""
    line = " ".join(message.split())
    return line if len(line) <= limit else f"{line[:limit]}..."
