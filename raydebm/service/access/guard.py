"""ASGI middleware around all routes: request ids, hosts, keys, limits, trace spans, and unforeseen errors.

Plain ASGI, so that streams pass through unbuffered and hold their place until they end.
"""

import asyncio
import ipaddress
import logging
import re
import time
import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from raydebm import tracing
from raydebm.errors import RaydebmError, ServiceError, as_service_error
from raydebm.service.access.admission import Admission, Intake
from raydebm.service.access.keys import ApiKey, Keyring
from raydebm.service.core.result import Meter
from raydebm.service.error_form import error_response
from raydebm.service.logs import REQUEST_ID
from raydebm.service.settings.app_args import LimitArgs
from raydebm.service.spending import Ledger, account_of

log = logging.getLogger(__name__)

PUBLIC_PATHS = frozenset({"/health", "/openapi.json"})
"""Paths that need no key, because probes have none."""
PAID_PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/triage")
"""Paths whose requests may have paid for candidates when their replica died."""
CLIENT_CLOSED = 499
MAX_BODY_S = 30.0
"""Longest time for the body of a request to arrive, in seconds."""
_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods of requests that take no place and whose bodies are not read."""
REQUEST_ID_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(slots=True)
class _TrackedAnswer:
    to: Send
    request_id: str | None
    """Request id to add to the answer. Default: none, because a proxy adds it."""
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
    """Settings of the guard."""

    max_body_bytes: int
    """Limit on request bodies. Larger ones are answered 413."""
    limits: LimitArgs
    """Limits on running and waiting requests."""
    public_paths: frozenset[str] = PUBLIC_PATHS
    """Paths that need no key and no place in the queue."""
    allowed_hosts: frozenset[str] = frozenset()
    """Accepted host names (lower case) of a service without keys, in addition to localhost and addresses."""
    echo_request_id: bool = True
    """Put ``X-Request-ID`` on the answer. Off behind Serve, whose proxy does it."""
    keyring: Keyring | None = None
    """Keys of the clients. Default: no key is needed."""
    meter: Meter = field(default_factory=Meter)
    """Request metrics."""
    intake: Intake = field(default_factory=Intake)
    """Counter of open requests; a closed one refuses them."""
    ledger: Ledger | None = None
    """Ledger of daily spending. Default: spending is not counted."""


class Guard:
    """Wrap the application; sets ``request_id``, ``received`` and ``account`` of ``request.state``.

    Args:
        routes: the application's routes, which name the route of a refused request.
    """

    def __init__(self, app: ASGIApp, *, settings: GuardSettings, routes: Sequence[BaseRoute] = ()) -> None:
        self._app, self._settings, self._routes = app, settings, routes
        self._admission = Admission(
            settings.limits.max_running, settings.limits.max_running // 4, on_change=self._tell_load
        )

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
            pass  # the client is gone
        except RaydebmError as error:
            await _last_resort(error_response(as_service_error(error)), scope, receive, answer)
        except Exception:
            # Unforeseen errors are logged with the request id and answered without a traceback.
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
        self._admission.check()  # a full queue refuses before the upload
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
        """Path template of the request. Raw paths would give metrics unbounded labels."""
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
    """Path below the route prefix. Serve and proxies leave the prefix in ``path`` and name it in ``root_path``."""
    path, prefix = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return (path.removeprefix(prefix) or "/") if f"{path}/".startswith(f"{prefix}/") else path


def _request_id(scope: Scope) -> str:
    """The client's or proxy's request id if it is well formed, else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and REQUEST_ID_PATTERN.fullmatch(value.decode("latin-1")):
            return str(value.decode("latin-1"))
    return uuid.uuid4().hex


async def read_body(scope: Scope, receive: Receive, *, max_bytes: int) -> bytes:
    """Read a whole body before its request takes a place, so that a slow client does not block others.

    Raises:
        ServiceError: 413 for a body above the limit, whatever its Content-Length; 408 for one that does not arrive
            within ``MAX_BODY_S``.
        ClientDisconnect: the client disconnected before the end.
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
    """Replay a body that was already read as one message, then pass on later messages."""
    pending = [body]

    async def receive_again() -> Message:
        if pending:
            return {"type": "http.request", "body": pending.pop(), "more_body": False}
        return await receive()

    return receive_again


LOCALHOST = "localhost"


def check_host(headers: Iterable[tuple[bytes, bytes]], allowed: Collection[str]) -> None:
    """Refuse a request whose ``Host`` is neither localhost, an address nor an allowed name.

    Args:
        headers: ASGI headers, with names in lower case.
        allowed: host names in lower case, without ports.

    Raises:
        ServiceError: 403; also for a missing or repeated ``Host``.
    """
    values = [value.decode("latin-1") for name, value in headers if name == b"host"]
    host = _without_port(values[0]) if len(values) == 1 else ""
    if not (host in allowed or host == LOCALHOST or host.endswith(f".{LOCALHOST}") or _is_address(host)):
        raise ServiceError(
            f"this service has no API keys and does not answer as {host!r}; ask it at localhost or by its address, "
            "name the host in allowed_hosts, or give it keys",
            403,
            "unknown_host",
        )


def _without_port(value: str) -> str:
    """``[::1]:8000`` -> ``::1``, ``LocalHost.:8000`` -> ``localhost``."""
    value = value.strip().lower()
    if value.startswith("["):
        return value[1:].partition("]")[0]
    return value.rpartition(":")[0].rstrip(".") if ":" in value else value.rstrip(".")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


_HEADERS = ("traceparent", "tracestate")


class Traced:
    """Wrap an application: one span per request, continuing the client's trace.

    Args:
        app: the wrapped application.
        untraced: paths without a span, such as those of probes.
    """

    def __init__(self, app: ASGIApp, *, untraced: Collection[str] = PUBLIC_PATHS) -> None:
        self._app, self._untraced = app, frozenset(untraced)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not tracing.is_tracing() or route_path(scope) in self._untraced:
            await self._app(scope, receive, send)
            return
        method = scope["method"]
        with tracing.span(method, {"http.request.method": method}, parent=_sent(scope), kind="server") as span:
            status: int | None = None

            async def remember(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            try:
                await self._app(scope, receive, remember)
            finally:
                route = getattr(scope.get("route"), "path", None)
                span.rename(f"{method} {route}" if route else method)
                facts = {"http.route": route, "http.response.status_code": status}
                span.set({**facts, "raydebm.request_id": scope.get("state", {}).get("request_id")})
                if status is not None and status >= 500:
                    span.fail(str(status))


def _sent(scope: Scope) -> dict[str, str]:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    return {name: headers[name] for name in _HEADERS if name in headers}
