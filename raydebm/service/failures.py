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
