"""HTTP statuses of errors: a RaydebmError never becomes a 500 with a traceback.

Client errors are 4xx, a failed part is 503. Does not know: HTTP, Ray.
"""

from raydebm.errors import (
    CheckpointError,
    ConfigError,
    GenerationError,
    MissingKeyError,
    PoolError,
    RaydebmError,
    ResourceError,
    ScoringError,
    ServiceError,
    TaskDataError,
    UnknownNameError,
)

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


def overloaded(message: str) -> ServiceError:
    """A temporary refusal: 503 with ``Retry-After``."""
    return ServiceError(message, 503, "overloaded")


def as_service_error(error: RaydebmError) -> ServiceError:
    """ServiceError with the HTTP status of a raydebm error."""
    if isinstance(error, ServiceError):
        return error
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            return ServiceError(str(error), status, code)
    return ServiceError(str(error), 503, "unavailable")
