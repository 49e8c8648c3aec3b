"""What Serve's proxy says by itself, in the service's form."""

import importlib
import re

import pytest
from hand_written_run import Client
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse

from raydebm.service.ray.proxy import PROXY_MIDDLEWARES, ProxyForm


def ask(response, *, path="/v1/triage", headers=None):
    """The reply, and the request's headers as the application behind the proxy sees them."""
    seen = {}

    async def app(scope, receive, send):
        seen.update(Request(scope).headers)
        await response(scope, receive, send)

    return Client(ProxyForm(app)).post(path, headers=headers), seen


DIED = PlainTextResponse("Internal Server Error", 500, headers={"X-Request-ID": "abc"})


@pytest.mark.parametrize(
    ("path", "retry"),
    [
        ("/v1/triage", "false"),
        ("/v1/chat/completions", "false"),
        ("/v1/score", None),
        ("/prefix/v1/triage", "false"),
        ("/prefix/v1/score", None),
    ],
)
def test_a_dead_replica_is_json_and_is_not_repeated_where_it_was_paid(path, retry):
    reply, _ = ask(DIED, path=path)
    assert (reply.status_code, reply.json()["error"]["code"]) == (500, "proxy_error")
    assert reply.json()["error"]["message"] == "the replica that worked on this request has died"
    assert reply.headers.get("x-should-retry") == retry
    assert reply.headers["x-request-id"] == "abc"


def test_a_full_queue_says_when_to_come_back():
    reply, _ = ask(PlainTextResponse("too many", 503))
    assert (reply.json()["error"]["message"], reply.headers["retry-after"]) == ("too many", "5")
    assert "x-should-retry" not in reply.headers


@pytest.mark.parametrize(
    "response", [JSONResponse({"error": 1}, 500), PlainTextResponse("fine"), StreamingResponse(iter(["a"]))]
)
def test_what_the_application_says_stays_as_it_is(response):
    reply, _ = ask(response)
    assert reply.content == (getattr(response, "body", None) or b"a")


@pytest.mark.parametrize("given", ["<script>", "a b", "x" * 65, ""])
def test_a_request_id_that_is_no_plain_one_is_replaced(given):
    _, seen = ask(PlainTextResponse("fine"), headers={"X-Request-ID": given})
    assert re.fullmatch("[0-9a-f]{32}", seen["x-request-id"])


def test_rays_setting_finds_the_middleware():
    module, _, name = PROXY_MIDDLEWARES.partition(":")
    (middleware,) = getattr(importlib.import_module(module), name)()
    assert middleware.cls is ProxyForm
