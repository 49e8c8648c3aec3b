"""HTTP statuses of errors: a RaydebmError never becomes a 500 with a traceback.

Client errors are 4xx, a failed part is 503. Does not know: HTTP, Ray.
"""

import math

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

BUSY_RETRY_S = 1.0
"""Retry time for a key with too many open requests; their end is unknown."""
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


class TooManyError(ServiceError):
    """A temporary refusal.

    Args:
        message: the limit and its owner.
        status: 429 for a key's own limits, 503 for the service's.
        wait_s: seconds until a retry.
    """

    def __init__(self, message: str, status: int, wait_s: float) -> None:
        code = "rate_limit_exceeded" if status == 429 else "overloaded"
        super().__init__(message, status, code)
        self.args = (message, status, wait_s)  # an exception that crosses processes is rebuilt from them
        self.wait_s = wait_s

    @property
    def retry_after_s(self) -> int:
        """Whole seconds, at least one, for the header."""
        return max(1, math.ceil(self.wait_s))


def as_service_error(error: RaydebmError) -> ServiceError:
    """ServiceError with the HTTP status of a raydebm error."""
    if isinstance(error, ServiceError):
        return error
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            return ServiceError(str(error), status, code)
    return ServiceError(str(error), 503, "unavailable")
