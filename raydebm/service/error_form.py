"""Error responses in the form of OpenAI's clients: ``{"error": {message, type, code, param}}``.

A RaydebmError never becomes a 500 with a traceback: client errors are 4xx, a failed part is 503.
"""

from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from raydebm.errors import OverloadedError, ServiceError
from raydebm.records import well_formed
from raydebm.service.logs import redact

RETRY_AFTER_S = 5


def error_body(message: str, *, status: int, code: str, param: str | None = None) -> dict[str, Any]:
    """JSON of a failure, without credentials and with unprintable text escaped."""
    kind = "rate_limit_error" if status == 429 else "invalid_request_error" if status < 500 else "server_error"
    return {
        "error": {
            "message": redact(well_formed(message)),
            "type": kind,
            "code": code,
            "param": param and well_formed(param),
        }
    }


def should_retry(error: ServiceError) -> bool:
    """True if resending the same request may succeed at no further cost."""
    return error.retry and error.status != 504


def error_response(error: ServiceError, *, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Response of a failure.

    429 and 503 have ``Retry-After``. 504, and a 503 after a payment, tell OpenAI's clients not to retry, because the
    same request would take as long or cost as much again. 401 has ``WWW-Authenticate``.
    """
    own: dict[str, str] = {}
    if not should_retry(error):
        own = {"X-Should-Retry": "false"}
    elif error.status in (429, 503):
        own = {"Retry-After": str(error.retry_after_s if isinstance(error, OverloadedError) else RETRY_AFTER_S)}
    elif error.status == 401:
        own = {"WWW-Authenticate": "Bearer"}
    body = error_body(str(error), status=error.status, code=error.code, param=error.param)
    return JSONResponse(body, status_code=error.status, headers={**(headers or {}), **own})


def validation_error(error: RequestValidationError) -> ServiceError:
    """First error of a body, with its path, in place of FastAPI's own form."""
    errors = error.errors()
    if isinstance(errors[0].get("input"), bytes):  # the body itself, which was not read
        message = "the body was not sent as JSON; send it with the header Content-Type: application/json"
        return ServiceError(message, 400, "invalid_json")
    # For a union, pydantic lists the errors of each alternative below its tag (``list[str]``); the deepest was meant.
    place = next((index for index, part in enumerate(errors[0]["loc"]) if index > 1 and _is_tag(part)), None)
    same = [other for other in errors if place and other["loc"][:place] == errors[0]["loc"][:place]] or errors[:1]
    fault: Mapping[str, Any] = max(same, key=lambda other: len(other["loc"]))
    end = len(fault["loc"]) - (fault["type"] == "extra_forbidden")  # whose last step is a name of the client's own
    steps = enumerate(fault["loc"])
    path = ".".join(str(part) for at, part in steps if part != "body" and not (1 < at < end and _is_tag(part)))
    message = str(fault["msg"]).removeprefix("Value error, ")
    more = len(errors) - len(same)
    also = f" (and {more} more problem{'s' if more > 1 else ''})" if more else ""
    code = "invalid_json" if fault["type"] == "json_invalid" else "invalid_request"
    if code == "invalid_json":
        return ServiceError(f"the body is not JSON: {message}", 400, code)
    return ServiceError(f"{path or 'body'}: {message}{also}", 400, code, path or None)


def _is_tag(part: object) -> bool:
    return isinstance(part, str) and ("[" in part or part[:1].isupper())


def http_error(error: HTTPException) -> ServiceError:
    """Error for unknown paths and methods, and for bodies that cannot be parsed."""
    if error.status_code == 400:  # FastAPI's words for a body that its JSON reader gives up on
        return ServiceError(
            "the body is not JSON: not UTF-8, nested too deeply, or a number is too long", 400, "invalid_json"
        )
    code = {404: "unknown_path", 405: "wrong_method"}.get(error.status_code, "http_error")
    return ServiceError(str(error.detail), error.status_code, code)
