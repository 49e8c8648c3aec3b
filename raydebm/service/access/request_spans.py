"""Trace spans of HTTP requests.

In:   ASGI requests with or without a W3C ``traceparent``.
Does not know: Ray. Spans contain no problem, answer, path parameter or key.
"""

from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from raydebm import tracing
from raydebm.service.access.guard import PUBLIC_PATHS, route_path

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
