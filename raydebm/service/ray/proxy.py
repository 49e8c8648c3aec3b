"""Middleware that puts errors of Serve's HTTP proxy into the service's form.

``raydebm serve`` installs it in its proxy. For ``serve deploy`` and ``serve run`` set
``RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=raydebm.service.ray.proxy:proxy_middlewares`` where Ray is started.
"""

import json
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from raydebm.service.access import REQUEST_ID_PATTERN, RETRY_AFTER_S, error_body

PROXY_SETTING = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
PROXY_MIDDLEWARES = "raydebm.service.ray.proxy:proxy_middlewares"
HEADER = "x-request-id"
PAID_PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/triage")
"""Paths whose requests may have paid for candidates when their replica died."""


def proxy_middlewares() -> list[Middleware]:
    """Entry point for Serve's proxy (``PROXY_SETTING``)."""
    return [Middleware(ProxyForm)]


class ProxyForm:
    """Replace malformed request ids, and give the proxy's own errors OpenAI's form.

    Serve's proxy answers in plain text when a replica dies. Clients retry such a 500 by themselves and pay again, so
    paths that may have paid for candidates answer ``X-Should-Retry: false``.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_headers = MutableHeaders(scope=scope)
        given = request_headers.get(HEADER)
        if given is not None and not REQUEST_ID_PATTERN.fullmatch(given):
            request_headers[HEADER] = uuid.uuid4().hex
        answer = _ProxiedAnswer(send, path=scope["path"])
        await self._app(scope, receive, answer.send)


class _ProxiedAnswer:
    """Pass on an answer; buffer a plain-text error and send it in OpenAI's form."""

    def __init__(self, to: Send, *, path: str) -> None:
        self._to, self._path = to, path
        self._held: Message | None = None
        self._text = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_plain_error(message):
            self._held = message
        elif self._held is not None and message["type"] == "http.response.body":
            self._text += message.get("body", b"")
            if not message.get("more_body", False):
                await self._send_error(self._held)
        else:
            await self._to(message)

    async def _send_error(self, start: Message) -> None:
        status = start["status"]
        words = self._text.decode("utf-8", "replace").strip()
        if status == 500:
            words = "the replica that worked on this request has died"
        body = json.dumps(error_body(words or "no answer", status=status, code="proxy_error")).encode()
        headers = MutableHeaders(scope=start)
        headers["content-type"], headers["content-length"] = "application/json", str(len(body))
        if status == 503:
            headers["retry-after"] = headers.get("retry-after", str(RETRY_AFTER_S))
        elif self._path.endswith(PAID_PATHS):  # after any route prefix
            headers["x-should-retry"] = "false"
        await self._to({**start, "headers": headers.raw})
        await self._to({"type": "http.response.body", "body": body})


def _is_plain_error(start: Message) -> bool:
    kind = Headers(raw=start.get("headers", [])).get("content-type", "text/plain")
    return start["status"] >= 400 and kind.startswith("text/plain")
