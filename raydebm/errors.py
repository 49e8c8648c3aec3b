"""The exceptions of raydebm.

RaydebmError
├── ConfigError          a recipe, flag or request is wrong: fix the input
│   ├── UnknownNameError an unknown name; the message lists the known ones
│   └── MissingKeyError  an API key is not in the environment
├── ConstraintError      a constraint is declared wrongly, or returned something that is not a penalty
├── TaskDataError        benchmark data or a recorded pool is not as documented
├── PoolError            an unusable pool: empty, all rows failed, nothing to pair
├── GenerationError      a generator cannot work at all (a single failed request is stored as data)
│   └── LimitReachedError a limit of the request (money) forbids a pass
│       └── CeilingReachedError the operator's daily limit forbids a pass
├── ScoringError         the scorer returned something that is not an energy (NaN, wrong shape)
├── CheckpointError      a checkpoint is missing, corrupt, or mixes incompatible parts
├── TrainingError        some adapters could not be trained; the finished ones are kept
│   └── StorageError     a disk accepts no more training output: it is full or not writable
├── ResourceError        Ray, a port or the cluster cannot provide what the recipe asks for
└── ServiceError         a request to the service cannot be answered
    └── OverloadedError  a temporary refusal, with the seconds until the next try

Messages give the thing, the value and the remedy. Every argument goes to ``super().__init__``, because an exception
that crosses a Ray process boundary is rebuilt from ``args``.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches

_CREDENTIALS = re.compile(r"://[^/?#\s\"']+@")


class RaydebmError(Exception):
    """Base class of all errors of this package."""


class ConfigError(RaydebmError):
    """A wrong recipe, flag or request; the message gives the fix."""


class UnknownNameError(ConfigError):
    """An unknown name, such as ``gms8k`` among the tasks."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known_names = tuple(sorted(known))
        super().__init__(kind, name, known_names)
        self.kind, self.name, self.known = kind, name, known_names

    def __str__(self) -> str:
        close = get_close_matches(self.name, self.known, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        return f"unknown {self.kind} {self.name!r}{hint}; known: {', '.join(self.known) or 'none'}"


class MissingKeyError(ConfigError):
    """A generator needs an API key that is not in the environment."""

    def __init__(self, generator: str, variable: str) -> None:
        super().__init__(generator, variable)
        self.generator, self.variable = generator, variable

    def __str__(self) -> str:
        return (
            f"generator {self.generator!r} needs an API key: environment variable {self.variable} is not set; "
            f"run `export {self.variable}=...` or change the generator's `api_key_env`"
        )


class ConstraintError(RaydebmError, ValueError):
    """A constraint is declared wrongly, or its check returned something that is not a penalty. A ``ValueError``, so
    that pydantic reports it with the key of the setting."""


class TaskDataError(RaydebmError):
    """Benchmark data or a recorded pool is missing, unreadable or not as documented."""


class PoolError(RaydebmError):
    """An unusable candidate pool: empty, all failed, or nothing to pair."""


class GenerationError(RaydebmError):
    """A generator cannot work at all. A single failed request becomes a candidate with ``error`` instead."""


class LimitReachedError(GenerationError):
    """A limit of the request forbids a pass; none of its requests were sent."""


class CeilingReachedError(LimitReachedError):
    """The operator's daily limit forbids a pass; none of its requests were sent."""


class ScoringError(RaydebmError):
    """The scorer returned something that is not an energy (NaN, infinity, wrong shape)."""


class CheckpointError(RaydebmError):
    """A checkpoint is missing, corrupt, or mixes incompatible parts."""


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
    """A disk accepts no more training output: it is full, read-only or owned by another user. All adapters would fail
    for the same reason."""


class ResourceError(RaydebmError):
    """Ray, a port or the cluster cannot provide what the recipe asks for."""


class ServiceError(RaydebmError):
    """A request to the service cannot be answered.

    Args:
        message: the thing, its value and the remedy.
        status: HTTP status of the response.
        code: short name for clients to switch on, such as ``"model_not_found"``.
        param: the faulty field of the request.
        retry: False if a retry would cost the same and fail again.
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
    """The message without user and password in URLs such as ``http://user:password@host``."""
    return _CREDENTIALS.sub("://***@", message)


def last_line(message: str) -> str:
    """The last non-blank line of a message. In a traceback that Ray returns from a worker, it names the exception."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a computation ran out of memory, on a device or in the machine. Works without torch."""
    names = {base.__name__ for base in type(error).__mro__}
    return bool(names & {"OutOfMemoryError", "MemoryError"}) or "can't allocate memory" in str(error)


def in_one_line(message: str, *, limit: int = 300) -> str:
    """Another package's error message, joined into one line and cut to ``limit`` characters."""
    line = " ".join(message.split())
    return line if len(line) <= limit else f"{line[:limit]}..."


# ---- HTTP statuses of the service: 4xx for client errors, 503 for a failed part, never a 500 with a traceback ----

_STATUS: tuple[tuple[type[RaydebmError], int, str], ...] = (
    (UnknownNameError, 404, "unknown_name"),
    (MissingKeyError, 503, "missing_key"),
    (ConfigError, 400, "bad_request"),
    (TaskDataError, 422, "not_a_problem"),
    (GenerationError, 503, "generation_failed"),
    (ScoringError, 503, "scoring_failed"),
    (CheckpointError, 503, "checkpoint_unusable"),
    (ResourceError, 503, "unavailable"),
    (PoolError, 503, "pool_unusable"),
)
"""First match wins; subclasses precede their bases."""


class OverloadedError(ServiceError):
    """A temporary refusal: 503 with ``Retry-After``.

    Args:
        message: the limit that is reached.
        retry_after_s: whole seconds until a retry may succeed.
    """

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        super().__init__(f"{message}; try again in {retry_after_s} s", 503, "overloaded")
        self.args = (message, retry_after_s)  # an exception that crosses processes is rebuilt from them
        self.retry_after_s = retry_after_s


def as_service_error(error: RaydebmError) -> ServiceError:
    """ServiceError with the HTTP status of a raydebm error."""
    if isinstance(error, ServiceError):
        return error
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            return ServiceError(str(error), status, code)
    return ServiceError(str(error), 503, "unavailable")
