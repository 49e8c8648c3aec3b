"""Access control: API keys, host names, request bodies, the bounded queue, the middleware around all routes, and errors
in the form of OpenAI's clients: ``{"error": {message, type, code, param}}``.

A keys file (YAML or JSON) looks like this; ``printf %s "$KEY" | sha256sum`` gives the hash of a key that ``openssl rand
-hex 32`` made. The file holds only hashes; keys are long and random, so a fast hash is enough::

    keys:
      - {name: team-a, sha256: 9f86d0..., per_day: {usd: 5.0}, reports_as: [audit]}

Without a file, RAYDEBM_API_KEYS holds the keys themselves: ``team-a=KEY1,team-b=KEY2``. No message contains a key or a
hash.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import math
import os
import re
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import yaml
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from raydebm import tracing
from raydebm.config.section import faults_in
from raydebm.errors import ConfigError, OverloadedError, RaydebmError, ServiceError, as_service_error
from raydebm.records import well_formed
from raydebm.service.core import Meter, internal_error
from raydebm.service.logs import REQUEST_ID, redact
from raydebm.service.settings import Bundle
from raydebm.service.spending import SERVICE, Account, Ceilings, Ledger
from raydebm.user_files import RepeatedKeyError, parsed_yaml

log = logging.getLogger(__name__)

ENVIRONMENT = "RAYDEBM_API_KEYS"
MIN_KEY_CHARS = 16
LOOK_EVERY_S = 5.0
"""Seconds between checks of the keys file. A removed key stops working within this time."""
MAX_BODY_S = 30.0
"""Longest time for the body of a request to arrive."""
MAX_WAIT_S = 30.0
"""Longest time in the queue. Requests that wait longer are answered with 503."""
MAX_RETRY_S = 600
"""Longest ``Retry-After`` of a refused request."""
CLIENT_CLOSED = 499
PUBLIC_PATHS = frozenset({"/health", "/openapi.json"})
"""Paths that need no key, because probes have none."""
REQUEST_ID_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,64}")


# ---- keys -----------------------------------------------------------------------------------------------------------


class ApiKey(BaseModel):
    """Hashed key of a client. The name appears in logs and metrics."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: str = Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")
    sha256: Annotated[str, AfterValidator(str.lower)] = Field(pattern=r"^[0-9a-fA-F]{64}$", repr=False)
    per_day: Ceilings | None = None
    """Spending per UTC day. Default: the service's ``key_per_day``."""
    decisions: bool = True
    """Permission to read stored decisions, that is, the problems and answers of all clients."""
    reports_as: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] | None = ()
    """Reporter names reserved for this key and others that list them. Null allows every name, also reserved ones."""


class _KeysFile(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    keys: list[ApiKey] = Field(min_length=1)


class Keyring:
    """The clients' keys. A changed file is read again; if it is invalid or missing, the last good keys stay in force.
    Raises ConfigError if the first file is invalid, or two keys have the same name or hash."""

    def __init__(
        self, keys: Sequence[ApiKey] = (), *, path: str | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path, self._clock = path, clock
        self._stamp, self._looked_at = None if path is None else _stamp(path), clock()
        self._keys = _distinct(keys if path is None else _keys_in(path))
        self.refusal: str | None = None
        """Error of the current file if it is not in use, else None."""

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def reserved_names(self) -> frozenset[str]:
        """Reporter names that only some keys may use."""
        return frozenset(name for key in self._keys for name in key.reports_as or ())

    def owner(self, authorization: str | None) -> ApiKey | None:
        """Owner of the key in an ``Authorization: Bearer ...`` header, or None. Takes the same time for all keys."""
        if self._path is not None and self._clock() - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = self._clock()
            self._read_again(self._path)
        scheme, _, key = (authorization or "").partition(" ")
        given = hashlib.sha256(key.strip().encode("utf-8", "replace")).hexdigest()
        owners = [known for known in self._keys if hmac.compare_digest(known.sha256, given)]
        return owners[0] if owners and scheme.lower() == "bearer" else None

    def _read_again(self, path: str) -> None:
        stamp = _stamp(path)
        if stamp == self._stamp:
            return
        self._stamp, self.refusal = stamp, None
        try:
            self._keys = _distinct(_keys_in(path))
            log.info("keys read again", extra={"facts": {"keys": len(self._keys)}})
        except ConfigError as error:
            self.refusal = f"the last good API keys stay in force: {error}"
            log.error("keys refused", extra={"facts": {"reason": str(error)}})


def load_keyring(path: str | None, environ: Mapping[str, str] = os.environ) -> Keyring | None:
    """Load the keys from a file, else from the environment. None if both are absent: requests then need no key. Raises
    ConfigError (see ``Keyring``)."""
    if path is not None:
        return Keyring(path=path)
    if not environ.get(ENVIRONMENT):
        return None
    keys = []
    for index, part in enumerate(part.strip() for part in environ[ENVIRONMENT].split(",") if part.strip()):
        name, _, key = part.partition("=") if "=" in part else (f"key-{index}", "", part)
        if len(key) < MIN_KEY_CHARS:
            raise ConfigError(
                f"{ENVIRONMENT}: key number {index + 1} is shorter than {MIN_KEY_CHARS} characters; "
                "make one with `openssl rand -hex 32`"
            )
        # Environment keys cannot list names, so each may report by any name; else no one could report as an auditor.
        keys.append(ApiKey(name=name, sha256=hashlib.sha256(key.encode()).hexdigest(), reports_as=None))
    return Keyring(keys)


def _stamp(path: str) -> tuple[int, ...]:
    """File identity, to detect changes. Kubernetes replaces mounted secrets through a link, so the inode changes."""
    try:
        stat = Path(path).stat()
    except OSError:
        return ()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _distinct(keys: Sequence[ApiKey]) -> Sequence[ApiKey]:
    owners: dict[str, str] = {}
    for key in keys:
        if key.name in owners.values():
            raise ConfigError(f"two API keys have the name {key.name!r}; give each its own")
        if (other := owners.setdefault(key.sha256, key.name)) != key.name:
            raise ConfigError(f"{other!r} and {key.name!r} have the same API key; give each its own, or remove one")
    return keys


def _keys_in(path: str) -> list[ApiKey]:
    try:
        return _KeysFile.model_validate(parsed_yaml(Path(path).read_text(encoding="utf-8"))).keys
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"keys file {path!r} cannot be read: {type(error).__name__}") from error
    except RepeatedKeyError as error:
        raise ConfigError(f"keys file {path!r}: a field is given twice, {error.place}; remove one of them") from None
    except yaml.YAMLError:
        raise ConfigError(f"keys file {path!r} is not YAML") from None  # YAML's message quotes the line
    except ValidationError as error:
        raise ConfigError(f"keys file {path!r}: {next(faults_in(error, root='the file', secret=True))}") from None


# ---- the queue ------------------------------------------------------------------------------------------------------


class Intake:
    """Count open requests, and refuse new ones once closed. Reloads keep the same object."""

    def __init__(self) -> None:
        self.num_open = 0
        self.is_closed = False

    @contextmanager
    def open(self) -> Iterator[None]:
        """Count a request while it is open. Raises ServiceError 503 if closed."""
        if self.is_closed:
            raise ServiceError("the service is shutting down; try again, on another replica", 503, "shutting_down")
        self.num_open += 1
        try:
            yield
        finally:
            self.num_open -= 1


class Admission:
    """Bounded set of running requests of one ingress replica, with a bounded first-come queue in front of it."""

    def __init__(
        self, max_running: int, max_waiting: int, *, on_change: Callable[[int], None] = lambda num_waiting: None
    ) -> None:
        self._max_running, self._max_waiting, self._on_change = max_running, max_waiting, on_change
        self._places = asyncio.Semaphore(max_running)
        self.num_waiting = 0
        self._begun_s: list[float] = []
        """Start times of the running requests, on the clock of the event loop."""
        self._held_s: deque[float] = deque(maxlen=64)
        """Running times of the latest requests."""

    def check(self) -> None:
        """Raise OverloadedError if the queue is full."""
        if self._places.locked() and self.num_waiting >= self._max_waiting:
            raise self._refusal(f"{len(self._begun_s)} requests are running and {self.num_waiting} are waiting here")

    def _refusal(self, words: str) -> OverloadedError:
        """Error with a retry time: until all waiting requests and one more have started, at the present rate."""
        held_s = fmean(self._held_s) if self._held_s else 0.0
        so_far_s = asyncio.get_running_loop().time() - fmean(self._begun_s) if self._begun_s else 0.0
        wait_s = (self.num_waiting + 1) * max(held_s, so_far_s) / self._max_running
        return OverloadedError(words, min(max(math.ceil(wait_s), 1), MAX_RETRY_S))

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place, and hold it. Raises OverloadedError if none becomes free in time."""
        self.check()
        self.num_waiting += 1
        if self._places.locked():
            self._on_change(self.num_waiting)
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                await self._places.acquire()
        except TimeoutError as error:
            raise self._refusal(f"no place became free within {MAX_WAIT_S:g} s") from error
        finally:
            self.num_waiting -= 1
            self._on_change(self.num_waiting)
        begun_s = asyncio.get_running_loop().time()
        self._begun_s.append(begun_s)
        try:
            yield
        finally:
            self._begun_s.remove(begun_s)
            self._held_s.append(asyncio.get_running_loop().time() - begun_s)
            self._places.release()


# ---- the middleware -------------------------------------------------------------------------------------------------


class Guard:
    """Middleware around all routes: request ids, hosts, keys, limits, trace spans, and unforeseen errors.

    Plain ASGI, so that streams pass through unbuffered and hold their place until they end. Sets ``request_id``,
    ``received``, ``caller`` (the key, if any), ``keyring`` and ``account`` of ``request.state``.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        bundle: Bundle,
        meter: Meter,
        public_paths: frozenset[str] = PUBLIC_PATHS,
        keyring: Keyring | None = None,
        intake: Intake | None = None,
        ledger: Ledger | None = None,
        routes: Sequence[BaseRoute] = (),
    ) -> None:
        """Public paths need no key, no place in the queue and no span; ``routes`` gives the path template of a refused
        request to logs and metrics."""
        self._app, self._bundle, self._meter, self._public, self._routes = app, bundle, meter, public_paths, routes
        self._keyring, self._intake, self._ledger = keyring, intake or Intake(), ledger
        self._allowed_hosts = frozenset(name.lower() for name in bundle.args.allowed_hosts)
        most = bundle.args.limits.max_running
        self._admission = Admission(most, most // 4, on_change=lambda num: meter.set("requests_waiting", num))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, method = Headers(scope=scope), scope["method"]
        given = headers.get("x-request-id")
        request_id = given if given and REQUEST_ID_PATTERN.fullmatch(given) else uuid.uuid4().hex
        started, status = time.perf_counter(), None

        async def answer(message: Message) -> None:
            nonlocal status
            status = message["status"] if message["type"] == "http.response.start" else status
            await send(message)

        state = scope.setdefault("state", {})
        state.update(request_id=request_id, received=started, caller=None, keyring=self._keyring, account=None)
        before, failure = REQUEST_ID.set(request_id), None
        is_public = route_path(scope) in self._public
        sent = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        facts: tracing.Attributes = {"http.request.method": method}
        # Not FastAPI's own instrumentation, which would send query strings and exception messages.
        with (
            nullcontext(tracing.NOTHING)
            if is_public
            else tracing.span(method, facts, parent=sent, kind="server") as span
        ):
            try:
                with self._intake.open():
                    await self._guarded(scope, receive, answer)
            except ClientDisconnect:
                status = CLIENT_CLOSED
            except RaydebmError as error:
                failure = as_service_error(error)
            except Exception:
                log.exception("request %s failed", request_id)
                failure = internal_error(request_id)
            finally:
                if failure is not None and status is None:
                    await error_response(failure)(scope, receive, answer)
                status, seconds = status or CLIENT_CLOSED, time.perf_counter() - started
                # The template of the path. Raw paths would give metrics unbounded labels.
                route = scope.get("route") or next(
                    (each for each in self._routes if each.matches(scope)[0] is Match.FULL), None
                )
                path, caller = getattr(route, "path", None), state["caller"]
                span.rename(f"{method} {path}" if path else method)
                span.set({"http.route": path, "http.response.status_code": status, "raydebm.request_id": request_id})
                if status >= 500:
                    span.fail(str(status))
                self._meter.count("requests", route=path or "other", status=str(status))
                self._meter.observe("request_seconds", seconds, route=path or "other")
                told = {"method": method, "route": path or "other", "status": status}
                told |= {"duration_ms": round(1000 * seconds, 1), "key": None if caller is None else caller.name}
                log.info("request", extra={"facts": told})
                REQUEST_ID.reset(before)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, keyring, limits = scope["state"], self._keyring, self._bundle.args.limits
        is_public = route_path(scope) in self._public
        if keyring is None:
            check_host(Headers(scope=scope), self._allowed_hosts)
        else:
            header = Headers(scope=scope).get("authorization")
            state["caller"] = keyring.owner(header)
            if state["caller"] is None and not is_public:
                words = "the API key is wrong" if header else "an API key is needed: Authorization: Bearer <key>"
                raise ServiceError(words, 401, "invalid_api_key")
        own = {} if (key := state["caller"]) is None else {f"key:{key.name}": key.per_day or limits.key_per_day}
        ceilings = {name: each for name, each in {SERVICE: limits.per_day, **own}.items() if each != Ceilings()}
        state["account"] = Account(self._ledger, ceilings) if self._ledger is not None and ceilings else None
        if is_public:
            await self._app(scope, receive, send)
        elif scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await while_connected(self._app, scope, receive, send)
        else:
            self._admission.check()  # a full queue refuses before the upload
            body = await read_body(scope, receive, max_bytes=self._bundle.args.max_body_bytes)
            async with self._admission.place():
                await while_connected(self._app, scope, receive, send, body=body)


def route_path(scope: Scope) -> str:
    """Path below the route prefix. Serve and proxies leave the prefix in ``path`` and name it in ``root_path``."""
    path, prefix = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return (path.removeprefix(prefix) or "/") if f"{path}/".startswith(f"{prefix}/") else path


async def read_body(scope: Scope, receive: Receive, *, max_bytes: int) -> bytes:
    """Read a whole body before its request takes a place, so that a slow client does not block others. Raises
    ServiceError 413 if the body is above the limit, whatever its Content-Length, ServiceError 408 if it does not arrive
    within ``MAX_BODY_S``, and ClientDisconnect."""
    declared, body, more = Headers(scope=scope).get("content-length", "0"), bytearray(), True
    size = int(declared) if declared.isdecimal() else 0
    try:
        async with asyncio.timeout(MAX_BODY_S):
            while more and size <= max_bytes:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                body += message.get("body", b"")
                size, more = max(size, len(body)), message.get("more_body", False)
    except TimeoutError as error:
        words = f"the body did not arrive within {MAX_BODY_S:g} s; send it again"
        raise ServiceError(words, 408, "body_too_slow") from error
    if size > max_bytes:
        raise ServiceError(f"the body is larger than {max_bytes} bytes", 413, "body_too_large")
    return bytes(body)


async def while_connected(app: ASGIApp, scope: Scope, receive: Receive, send: Send, *, body: bytes = b"") -> None:
    """Run the application with a body already read. If the client disconnects, cancel the application and so all its
    upstream calls at once, and raise ClientDisconnect.

    Servers report a disconnect as a message, which has to be received. Frameworks receive it only while they stream, or
    at the next event, which may be minutes away while candidates are sampled.
    """
    pending = [body]

    async def until_gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def receive_body() -> Message:
        if not pending:
            await asyncio.shield(gone)
        return {"type": "http.request", "body": pending.pop()} if pending else {"type": "http.disconnect"}

    gone = asyncio.create_task(until_gone())
    work = asyncio.ensure_future(app(scope, receive_body, send))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        await work
    finally:
        gone.cancel()
        await ended(work)


async def ended(task: "asyncio.Future[Any]") -> None:
    """Cancel a task that is not done, and wait for its end."""
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def check_host(headers: Headers, allowed: Collection[str]) -> None:
    """Raise ServiceError 403 for a request whose ``Host`` is missing, repeated, or neither localhost, an address nor an
    allowed name (in lower case, without a port)."""
    values = headers.getlist("host")
    host = values[0].strip().lower() if len(values) == 1 else ""
    # ``[::1]:8000`` -> ``::1``, ``LocalHost.:8000`` -> ``localhost``
    host = host[1:].partition("]")[0] if host.startswith("[") else re.sub(r":[^:]*$", "", host).rstrip(".")
    if host in allowed or host == "localhost" or host.endswith(".localhost"):
        return
    try:
        ipaddress.ip_address(host)
    except ValueError:
        words = (
            f"this service has no API keys and does not answer as {host!r}; ask it at localhost or by its address, "
            "name the host in allowed_hosts, or give it keys"
        )
        raise ServiceError(words, 403, "unknown_host") from None


# ---- errors ---------------------------------------------------------------------------------------------------------

RETRY_AFTER_S = 5


def error_body(message: str, *, status: int, code: str, param: str | None = None) -> dict[str, Any]:
    """JSON of a failure, without credentials and with unprintable text escaped."""
    kind = "rate_limit_error" if status == 429 else "invalid_request_error" if status < 500 else "server_error"
    words = redact(well_formed(message))
    return {"error": {"message": words, "type": kind, "code": code, "param": param and well_formed(param)}}


def should_retry(error: ServiceError) -> bool:
    """True if resending the same request may succeed at no further cost."""
    return error.retry and error.status != 504


def error_response(error: ServiceError, *, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Response of a failure. 504, and a 503 after a payment, tell OpenAI's clients not to retry, because the same
    request would take as long or cost as much again."""
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
    """Error for an invalid body, with the path of its first fault."""
    errors = error.errors()
    if isinstance(errors[0].get("input"), bytes):  # the body itself, not parsed
        message = "the body was not sent as JSON; send it with the header Content-Type: application/json"
        return ServiceError(message, 400, "invalid_json")
    # For a union, pydantic lists the errors of each alternative below its tag (``list[str]``). The alternative with the
    # deepest error was probably meant.
    place = next((index for index, part in enumerate(errors[0]["loc"]) if index > 1 and _is_tag(part)), None)
    same = [other for other in errors if place and other["loc"][:place] == errors[0]["loc"][:place]] or errors[:1]
    fault: Mapping[str, Any] = max(same, key=lambda other: len(other["loc"]))
    end = len(fault["loc"]) - (fault["type"] == "extra_forbidden")  # an extra field is the client's own name, not a tag
    steps = enumerate(fault["loc"])
    path = ".".join(str(part) for at, part in steps if part != "body" and not (1 < at < end and _is_tag(part)))
    message = str(fault["msg"]).removeprefix("Value error, ")
    more = len(errors) - len(same)
    also = f" (and {more} more problem{'s' if more > 1 else ''})" if more else ""
    if fault["type"] == "json_invalid":
        return ServiceError(f"the body is not JSON: {message}", 400, "invalid_json")
    return ServiceError(f"{path or 'body'}: {message}{also}", 400, "invalid_request", path or None)


def _is_tag(part: object) -> bool:
    return isinstance(part, str) and ("[" in part or part[:1].isupper())


def http_error(error: HTTPException) -> ServiceError:
    """Error for unknown paths and methods, and for bodies that cannot be parsed."""
    if error.status_code == 400:  # FastAPI's status for a body that its JSON parser cannot read at all
        message = "the body is not JSON: not UTF-8, nested too deeply, or a number is too long"
        return ServiceError(message, 400, "invalid_json")
    code = {404: "unknown_path", 405: "wrong_method"}.get(error.status_code, "http_error")
    return ServiceError(str(error.detail), error.status_code, code)
