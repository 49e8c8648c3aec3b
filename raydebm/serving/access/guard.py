"""What happens to every HTTP request before and around the routes: its id, who calls, its limits, the last resort.

A plain ASGI middleware, so that streams pass through unbuffered and hold their place until they end.
"""

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from raydebm.errors import RaydebmError, ServiceError
from raydebm.serving.access.admission import Admission, Intake
from raydebm.serving.access.hosts import check_host
from raydebm.serving.access.keys import ApiKey, Keyring
from raydebm.serving.core.meter import Meter
from raydebm.serving.error_form import error_response
from raydebm.serving.failures import as_service_error
from raydebm.serving.logs import REQUEST_ID
from raydebm.serving.settings.app_args import LimitArgs
from raydebm.serving.spending.ceilings import account_of
from raydebm.serving.spending.ledger import Ledger

log = logging.getLogger(__name__)

PUBLIC_PATHS = frozenset({"/health", "/openapi.json"})
"""What needs no key, because probes have none."""
PAID_PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/triage")
"""Requests that may have paid for candidates when the replica that held them died."""
CLIENT_CLOSED = 499
MAX_BODY_S = 30.0
"""Seconds in which the whole body of a request must arrive."""
_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods of requests that take no place and whose bodies are not read."""
REQUEST_ID_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(slots=True)
class _TrackedAnswer:
    """Sends, and remembers what was sent."""

    to: Send
    request_id: str | None
    """None: something in front puts it on the answer."""
    status: int = CLIENT_CLOSED
    started: bool = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            if self.request_id is not None:
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", self.request_id.encode())]
        await self.to(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """What the guard lets in, and whom it asks."""

    max_body_bytes: int
    """Larger bodies are answered 413."""
    limits: LimitArgs
    """How much is taken on."""
    public_paths: frozenset[str] = PUBLIC_PATHS
    """What needs no key and no place in the queue."""
    allowed_hosts: frozenset[str] = frozenset()
    """Names in lower case under which it answers where there are no keys, in addition to localhost and addresses."""
    echo_request_id: bool = True
    """Put ``X-Request-ID`` on the answer. Off behind Serve, whose proxy does it."""
    keyring: Keyring | None = None
    """Who may call; None: anyone."""
    meter: Meter = field(default_factory=Meter)
    """Counts requests."""
    intake: Intake = field(default_factory=Intake)
    """Counts open requests and can be closed."""
    ledger: Ledger | None = None
    """Counts the days' spending; None: it is not counted."""


class Guard:
    """Wraps the application, and sets ``request_id``, ``received`` and ``account`` of ``request.state``.

    Args:
        routes: of the application, to name a request that is refused before it gets there.
    """

    def __init__(self, app: ASGIApp, *, settings: GuardSettings, routes: Sequence[BaseRoute] = ()) -> None:
        self._app, self._settings, self._routes = app, settings, routes
        self._admission = Admission(settings.limits, on_change=self._tell_load)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id, started = _request_id(scope), time.perf_counter()
        scope.setdefault("state", {}).update(request_id=request_id, received=started)
        answer = _TrackedAnswer(send, request_id if self._settings.echo_request_id else None)
        before = REQUEST_ID.set(request_id)
        try:
            with self._settings.intake.open():
                await self._guarded(scope, receive, answer)
        except ClientDisconnect:
            pass  # there is no one left to answer
        except RaydebmError as error:
            await _last_resort(error_response(as_service_error(error)), scope, receive, answer)
        except Exception:
            # One place for what no one foresaw: logged with its id, answered without a traceback.
            log.exception("request %s failed", request_id)
            failure = ServiceError(f"internal error; the log has it under request id {request_id}", 500, "internal")
            await _last_resort(error_response(failure), scope, receive, answer)
        finally:
            self._tell(scope, answer.status, time.perf_counter() - started)
            REQUEST_ID.reset(before)

    async def _guarded(self, scope: Scope, receive: Receive, answer: _TrackedAnswer) -> None:
        if self._settings.keyring is None:
            check_host(scope["headers"], self._settings.allowed_hosts)
        if route_path(scope) in self._settings.public_paths:
            keyring = self._settings.keyring
            scope["state"]["may_call"] = keyring is None or keyring.owner(_authorization(scope)) is not None
            await self._app(scope, receive, answer.send)
            return
        key, limits = self._caller(scope), self._settings.limits
        scope["state"]["account"] = account_of(
            self._settings.ledger,
            service=limits.per_day,
            key_name=None if key is None else key.name,
            key=limits.key_per_day if key is None or key.per_day is None else key.per_day,
        )
        if scope["method"] in _WITHOUT_BODY:
            await self._app(scope, receive, answer.send)
            return
        self._admission.check()  # when no request could wait, none need be uploaded
        body = await read_body(scope, receive, max_bytes=self._settings.max_body_bytes)
        async with self._admission.place():
            await self._app(scope, _replayed(body, receive), answer.send)

    def _caller(self, scope: Scope) -> ApiKey | None:
        if self._settings.keyring is None:
            return None
        header = _authorization(scope)
        key = self._settings.keyring.owner(header)
        if key is None:
            words = "the API key is wrong" if header else "an API key is needed: Authorization: Bearer <key>"
            raise ServiceError(words, 401, "invalid_api_key")
        scope["state"]["key"] = key.name
        scope["state"].update(may_see_decisions=key.decisions, reports_as=key.reports_as)
        scope["state"]["reserved_names"] = self._settings.keyring.reserved_names
        return key

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        status = CLIENT_CLOSED if scope["state"].get("client_closed") else status
        route = self._route_of(scope)
        self._settings.meter.answered(route=route, status=status, seconds=seconds)
        self._tell_load()
        facts = {
            "method": scope["method"],
            "route": route,
            "status": status,
            "duration_ms": round(1000 * seconds, 1),
            "key": scope["state"].get("key"),
        }
        log.info("request", extra={"facts": facts})

    def _route_of(self, scope: Scope) -> str:
        """The path's template; there are few of them, where paths are what strangers make up."""
        route = scope.get("route")
        if route is None:
            route = next((each for each in self._routes if each.matches(scope)[0] is Match.FULL), None)
        return getattr(route, "path", "other")

    def _tell_load(self) -> None:
        self._settings.meter.load(num_waiting=self._admission.num_waiting)


async def _last_resort(response: JSONResponse, scope: Scope, receive: Receive, answer: _TrackedAnswer) -> None:
    if not answer.started:
        await response(scope, receive, answer.send)


def _authorization(scope: Scope) -> str | None:
    header = next((value for name, value in scope["headers"] if name == b"authorization"), None)
    return None if header is None else header.decode("latin-1")


def route_path(scope: Scope) -> str:
    """The path below the route prefix, which Serve and proxies leave in ``path`` and name in ``root_path``."""
    path, prefix = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return (path.removeprefix(prefix) or "/") if f"{path}/".startswith(f"{prefix}/") else path


def _request_id(scope: Scope) -> str:
    """The client's or the proxy's id when it is a plain one, else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and REQUEST_ID_PATTERN.fullmatch(value.decode("latin-1")):
            return str(value.decode("latin-1"))
    return uuid.uuid4().hex


async def read_body(scope: Scope, receive: Receive, *, max_bytes: int) -> bytes:
    """Read a whole body before its request takes a place, so that a slow client holds up no other.

    Raises:
        ServiceError: 413 for a body above the limit, whatever its Content-Length says; 408 for one that does not arrive
            within ``MAX_BODY_S``.
        ClientDisconnect: the client went away meanwhile.
    """
    too_large = ServiceError(f"the body is larger than {max_bytes} bytes", 413, "body_too_large")
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    if declared.isdigit() and int(declared) > max_bytes:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(MAX_BODY_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                body += message.get("body", b"")
                if len(body) > max_bytes:
                    raise too_large
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError as error:
        raise ServiceError(
            f"the body did not arrive within {MAX_BODY_S:g} s; send it again", 408, "body_too_slow"
        ) from error


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Hand on a body that was read before in one message, then what comes after it."""
    pending = [body]

    async def receive_again() -> Message:
        if pending:
            return {"type": "http.request", "body": pending.pop(), "more_body": False}
        return await receive()

    return receive_again
