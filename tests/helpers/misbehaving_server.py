"""An OpenAI-compatible server on a real socket that does what each request's last message tells it.

The last user message is ``"<name>: <behaviour>, <behaviour>, …"``: the first attempt meets the first behaviour, and so
on; when they are used up, the last one stays. Run as a program it serves until it is ended and prints its port.
"""

import argparse
import asyncio
import gzip
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from threaded_server import ThreadedServer

HANG_S = 30.0
BLANKS = b" " * 5_000_000


class MisbehavingServer(ThreadedServer):
    def __init__(self, *, latency_s: float = 0.0, port: int = 0) -> None:
        super().__init__(port=port)
        self.latency_s = latency_s
        self.may_answer: Callable[[int], bool] = lambda number: True
        """Whether the request that came as the first, second ... may be answered now; until then it waits."""
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.attempts: Counter[str] = Counter()
        self.in_flight = 0
        self.max_in_flight = 0
        self.in_flight_at_arrival: list[int] = []
        self.num_requests = 0
        self.num_paid = 0
        """Requests that were answered by ``ok``, whether or not somebody took the answer."""
        self.keep_bodies = True

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        app.router.add_get("/count", self._count)
        app.router.add_get("/release", self._release)
        return app

    async def _count(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "requests": self.num_requests,
                "max_in_flight": self.max_in_flight,
                "paid": self.num_paid,
            }
        )

    async def _release(self, request: web.Request) -> web.Response:
        self.may_answer = lambda number: True
        return web.Response()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.num_requests += 1
        number = self.num_requests
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        self.in_flight_at_arrival.append(self.in_flight)
        if self.keep_bodies:
            self.bodies.append(body)
            self.headers.append(dict(request.headers))
        try:
            while not self.may_answer(number):
                await asyncio.sleep(0.005)
            if self.latency_s:
                await asyncio.sleep(self.latency_s)
            content = body["messages"][-1]["content"]
            name, _, wanted = content.partition(":")
            key = f"{content}#{body.get('seed')}"
            behaviours = [word.strip() for word in wanted.split(",")] if wanted else ["ok"]
            attempt = min(self.attempts[key], len(behaviours) - 1)
            self.attempts[key] += 1
            self.num_paid += behaviours[attempt] == "ok"
            return await BEHAVIOURS[behaviours[attempt]](request, body, name)
        finally:
            self.in_flight -= 1


def completion(text: str | None, **overrides: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text} | overrides.pop("message", {})
    choice = {"index": 0, "message": message, "finish_reason": overrides.pop("finish_reason", "stop")}
    usage = {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30} | overrides.pop("usage", {})
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    } | overrides


Behaviour = Callable[[web.Request, dict[str, Any], str], Awaitable[web.StreamResponse]]


async def _ok(request: web.Request, body: dict[str, Any], name: str) -> web.StreamResponse:
    return web.json_response(completion(f"answer to {name} with seed {body.get('seed')}"))


async def _with_logprobs(request: web.Request, body: dict[str, Any], name: str) -> web.StreamResponse:
    """Two tokens with their log-probabilities, where they are asked for."""
    reply = completion("4 2")
    if body.get("logprobs"):
        entries = [{"token": "4", "logprob": -0.5, "bytes": None}, {"token": " 2", "logprob": -1.5, "bytes": None}]
        reply["choices"][0]["logprobs"] = {"content": entries}
    return web.json_response(reply)


async def _refuses_logprobs(request: web.Request, body: dict[str, Any], name: str) -> web.StreamResponse:
    if "logprobs" in body:
        return web.json_response({"error": {"message": "logprobs is not supported by this model"}}, status=400)
    return await _ok(request, body, name)


async def _hang(request: web.Request, body: dict[str, Any], name: str) -> web.StreamResponse:
    await asyncio.sleep(HANG_S)
    return web.Response(status=500)


async def _reset(request: web.Request, body: dict[str, Any], name: str) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response(status=500)


async def _cut_off(request: web.Request, body: dict[str, Any], name: str) -> web.StreamResponse:
    """Promise 1000 bytes, send ten, hang up."""
    response = web.StreamResponse(headers={"Content-Length": "1000", "Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(b'{"choices"')
    assert request.transport is not None
    request.transport.abort()
    return response


async def _packed(request: web.Request, body: dict[str, Any], name: str) -> web.StreamResponse:
    """Five kilobytes that become five megabytes."""
    return web.Response(body=gzip.compress(BLANKS), headers={"Content-Encoding": "gzip"})


async def _endless(request: web.Request, body: dict[str, Any], name: str) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(BLANKS)


def _fixed(status: int, content: Any, headers: dict[str, str] | None = None) -> Behaviour:
    async def behave(request: web.Request, body: dict[str, Any], name: str) -> web.StreamResponse:
        text = content if isinstance(content, str) else json.dumps(content)
        return web.Response(status=status, text=text, headers=headers, content_type="application/json")

    return behave


async def _echo_key(request: web.Request, body: dict[str, Any], name: str) -> web.StreamResponse:
    message = f"Incorrect API key provided: {request.headers.get('Authorization')}"
    return web.json_response({"error": {"message": message}}, status=401)


async def _redirect(request: web.Request, body: dict[str, Any], name: str) -> web.StreamResponse:
    """To itself, for ever: who follows sends more than one request."""
    return web.Response(status=307, headers={"Location": str(request.url)})


BEHAVIOURS: dict[str, Behaviour] = {
    "ok": _ok,
    "hang": _hang,
    "with logprobs": _with_logprobs,
    "refuses logprobs": _refuses_logprobs,
    "reset": _reset,
    "cut off": _cut_off,
    "redirect": _redirect,
    "packed": _packed,
    "endless": _endless,
    "401": _echo_key,
    "402": _fixed(402, {"error": {"message": "insufficient credits"}}),
    "404": _fixed(404, {"error": {"message": "no such model"}}),
    "400": _fixed(400, {"error": {"message": "messages must not be empty"}}),
    "429": _fixed(429, {"error": {"message": "slow down"}}),
    "429 after 1": _fixed(429, {"error": {"message": "slow down"}}, {"Retry-After": "1"}),
    "500": _fixed(500, "<html>oh no</html>"),
    "503": _fixed(503, {"error": {"message": "overloaded"}}),
    "truncated": _fixed(200, json.dumps(completion("x"))[:40]),
    "list": _fixed(200, [1, 2]),
    "empty choices": _fixed(200, {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 0, "cost": 0.5}}),
    "no content": _fixed(200, completion(None)),
    "filtered": _fixed(200, completion(None, finish_reason="content_filter")),
    "cut thinking": _fixed(200, completion("<think>so much to", finish_reason="length")),
    "length": _fixed(200, completion("an answer that", finish_reason="length")),
    "think": _fixed(200, completion("<think>two and two</think>\n\nfour")),
    "reasoning": _fixed(200, completion("four", message={"reasoning": "two and two"})),
    "reasoning_content": _fixed(200, completion("four", message={"reasoning_content": "two and two"})),
    "parts": _fixed(
        200, completion(None, message={"content": [{"type": "text", "text": "fo"}, {"type": "text", "text": "ur"}]})
    ),
    "error in body": _fixed(200, {"error": {"code": 502, "message": "provider is down"}}),
    "priced": _fixed(200, completion("four", usage={"cost": 0.25})),
}


async def _serve_forever(port: int, latency_s: float, hold_from: int | None) -> None:
    server = MisbehavingServer(latency_s=latency_s, port=port)
    server.keep_bodies = False
    if hold_from is not None:
        server.may_answer = lambda number: number < hold_from
    await server.start()
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency-s", type=float, default=0.0)
    parser.add_argument("--hold-from", type=int, help="this request and later ones wait for GET /release")
    arguments = parser.parse_args()
    asyncio.run(_serve_forever(arguments.port, arguments.latency_s, arguments.hold_from))
