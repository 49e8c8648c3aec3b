"""What happens to every HTTP request before and around the routes: its id, its size limit, and the last resort.

A plain ASGI middleware, so that streams pass through unbuffered.
"""

import logging
import re
import uuid

from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from raydebm.errors import RaydebmError, ServiceError
from raydebm.serving.errors import as_service_error, error_response

log = logging.getLogger(__name__)

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Guard:
    """Wraps the application. Sets ``request.state.request_id``.

    Args:
        max_body_bytes: larger bodies are answered 413.
        echo_request_id: put ``X-Request-ID`` on the answer. Off behind Serve, whose proxy does it.
    """

    def __init__(self, app: ASGIApp, *, max_body_bytes: int, echo_request_id: bool = True) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes
        self._echo_request_id = echo_request_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                if self._echo_request_id:
                    message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self._app(scope, _limited(scope, receive, self._max_body_bytes), send_with_id)
        except RaydebmError as error:
            await _last_resort(error_response(as_service_error(error)), started, scope, receive, send_with_id)
        except Exception:
            # One place for what nobody foresaw: logged with its id, answered without a traceback.
            log.exception("request %s failed", request_id)
            failure = ServiceError(f"internal error; the log has it under request id {request_id}", 500, "internal")
            await _last_resort(error_response(failure), started, scope, receive, send_with_id)


async def _last_resort(response: JSONResponse, started: bool, scope: Scope, receive: Receive, send: Send) -> None:
    if not started:
        await response(scope, receive, send)


def _request_id(scope: Scope) -> str:
    """The client's or the proxy's id when it is a plain one, else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value.decode("latin-1")):
            return str(value.decode("latin-1"))
    return uuid.uuid4().hex


def _limited(scope: Scope, receive: Receive, limit: int) -> Receive:
    """Refuse a body above the limit while it is read, whatever its Content-Length says.

    An HTTPException, because FastAPI turns every other error of reading a body into a 400 of its own.
    """
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    seen = int(declared) if declared.isdigit() and int(declared) > limit else 0

    async def limited() -> Message:
        nonlocal seen
        if seen <= limit:
            message = await receive()
            seen += len(message.get("body", b""))
        if seen > limit:
            raise HTTPException(413, f"the body is larger than {limit} bytes")
        return message

    return limited
