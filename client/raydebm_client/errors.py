"""What a request to the service can fail with."""


class ServiceError(Exception):
    """The service refused a request, failed, or could not be reached.

    Args:
        message: the service's own words, or what happened on the way.
        status: the HTTP status; 503 and 504 also for a service that was not reached or said nothing.
        code: a short name to switch on, such as ``"model_not_found"``.
        param: the field of the request that is at fault.
    """

    def __init__(self, message: str, status: int, code: str, param: str | None = None) -> None:
        super().__init__(message, status, code, param)
        self.message, self.status, self.code, self.param = message, status, code, param

    def __str__(self) -> str:
        return self.message
