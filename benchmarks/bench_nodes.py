"""Candidates per second on one to eight nodes, up to the endpoint's limit.

All nodes are on this machine: separate Ray processes with one CPU per node, and a head without CPUs. They run the real
stage of candidates, with one generating process per node that keeps ``--in-flight`` requests open. The endpoint is a
process that takes ``--latency-s`` per request on average (each 0.5 to 1.5 times that). It works on ``--capacity``
requests at once and queues the rest. The processes mostly wait, so two cores are enough.

The endpoint answers only after all nodes have opened all their requests, so the start of Ray's processes does not
count. The rate is measured from two latencies later to the last moment at which all requests were open, so the end of
the run does not count either. Numbers of nodes that cannot reach a capacity are measured only with the largest one.

    python benchmarks/bench_nodes.py --nodes 1 2 4 8 --capacity 512 48
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import random
import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
from aiohttp import web
from bench_processes import served

from raydebm.config import GenerationConfig, OpenAIGenerator, Recipe, TaskConfig
from raydebm.pipeline.ray.session import ENVIRONMENT
from raydebm.records import GenerationRequest, Sampling
from raydebm.run.directory import RunDir

# Ray reads these when it is imported. Its workers have a low priority by default, with which they may fail to start on
# a busy machine.
OWN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_worker_niceness": "0"}
os.environ.update(OWN | ENVIRONMENT)

Event = tuple[float, int]
"""Time at which a request arrived (+1) or was answered (-1), in seconds of the monotonic clock."""


class Endpoint:
    """Answers completions slowly, and records when requests arrived and were answered."""

    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s
        self._events: list[Event] = []
        self._jitter = random.Random(0)
        self._places, self._is_full = asyncio.Semaphore(1), asyncio.Event()
        self._open = self._until_open = 0

    def app(self) -> web.Application:
        """The application. ``/limit/CAPACITY/OPEN`` clears events, and delays answers until OPEN requests are open."""
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        app.router.add_get("/limit/{capacity}/{open}", self._limit)
        app.router.add_get("/events", self._told)
        return app

    async def _answer(self, request: web.Request) -> web.Response:
        self._count(1)
        try:
            await request.read()
            await self._is_full.wait()
            async with self._places:
                await asyncio.sleep(self._latency_s * self._jitter.uniform(0.5, 1.5))
        finally:
            self._count(-1)
        message = {"role": "assistant", "content": "The answer is 4."}
        usage = {"prompt_tokens": 10, "completion_tokens": 6}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage})

    def _count(self, change: int) -> None:
        self._events.append((time.monotonic(), change))
        self._open += change
        if self._open == self._until_open:
            self._is_full.set()

    async def _limit(self, request: web.Request) -> web.Response:
        self._places, self._is_full = asyncio.Semaphore(int(request.match_info["capacity"])), asyncio.Event()
        self._until_open = int(request.match_info["open"])
        self._events.clear()
        return web.Response()

    async def _told(self, request: web.Request) -> web.Response:
        return web.json_response(self._events)


async def serve(latency_s: float) -> None:
    """Print the port, and answer until killed."""
    runner = web.AppRunner(Endpoint(latency_s).app(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


@contextlib.contextmanager
def growing_cluster() -> Iterator[Any]:
    """A Ray cluster with a head without CPUs, to which nodes can be added; this process is its driver."""
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 200 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()  # type: ignore[no-untyped-call]


def grow(cluster: Any, num_nodes: int) -> None:
    """Add nodes until there are ``num_nodes``.

    Raises:
        SystemExit: a node did not start within three minutes.
    """
    from raydebm.pipeline.ray.placement import cluster_nodes

    def present() -> int:
        return sum(node.get("CPU", 0) > 0 for node in cluster_nodes())

    while (before := present()) < num_nodes:
        with contextlib.suppress(Exception):  # raised after 30 s, which a busy machine may exceed
            cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20, wait=False)
        end = time.monotonic() + 180
        while present() == before:
            if time.monotonic() > end:
                raise SystemExit("a node did not start; free this machine's CPUs")
            time.sleep(0.5)


def measure(options: argparse.Namespace, url: str, *, nodes: int, capacity: int) -> str:
    """Run the stage once, and return its row of the table in Markdown.

    Raises:
        SystemExit: requests failed.
    """
    from raydebm.pipeline.ray.generate import generate

    generator = OpenAIGenerator(
        name="g", model="m", base_url=f"{url}/v1", api_key_env=None, max_in_flight=options.in_flight
    )
    settings = GenerationConfig(num_processes=nodes, num_in_flight=options.in_flight)
    recipe = Recipe(name="nodes", task=TaskConfig(name="bench"), generators=(generator,), generation=settings)
    requests = [request_of(number) for number in range(nodes * options.per_node)]
    in_flight = nodes * options.in_flight
    urlopen(f"{url}/limit/{capacity}/{in_flight}").read()
    with tempfile.TemporaryDirectory() as folder:
        run, used = RunDir(folder), set[int]()
        summary = generate(requests, recipe=recipe, run=run, on_progress=lambda done, total: used.update(raylets(run)))
    if summary.num_failed:
        raise SystemExit(f"{summary.num_failed} requests failed: {summary.errors}")
    events: list[Event] = json.loads(urlopen(f"{url}/events").read())
    all_up, last = full_moments(events, in_flight)
    first = all_up + 2 * options.latency_s
    per_s = sum(change < 0 for at, change in events if first < at <= last) / (last - first)
    expected_per_s = min(in_flight, capacity) / options.latency_s
    open_requests = f"{mean_in_flight(events, first, last):.1f} of {in_flight}"
    cells = (f"{nodes} ({len(used)})", f"{capacity}", f"{summary.num_ok:,}", f"{per_s:.1f}", f"{expected_per_s:g}")
    return f"| {' | '.join((*cells, open_requests, f'{last - first:.0f}'))} |"


def request_of(number: int) -> GenerationRequest:
    """One of many requests, each for a different problem."""
    messages = ({"role": "user", "content": f"What is 2 + 2? ({number})"},)
    return GenerationRequest(
        task="bench", problem_id=f"{number}", generator="g", messages=messages, sampling=Sampling(), seed=number
    )


def full_moments(events: Sequence[Event], in_flight: int) -> tuple[float, float]:
    """The first and the last moment at which ``in_flight`` requests were open."""
    counts = accumulate(change for _, change in events)
    full = [at for (at, _), count in zip(events, counts, strict=True) if count == in_flight]
    return full[0], full[-1]


def mean_in_flight(events: Sequence[Event], first: float, last: float) -> float:
    """Mean number of open requests between two moments."""
    open_requests, area = 0, 0.0
    for (at, change), (until, _) in pairwise([*events, (last, 0)]):
        open_requests += change
        area += open_requests * max(0.0, min(until, last) - max(at, first))
    return area / (last - first)


def raylets(run: RunDir) -> set[int]:
    """Process ids of the raylets (one per node) whose processes write the run's journal."""
    journals = Path(run.uri("candidates", "journal")).glob("*.jsonl")
    processes = {int(journal.name.split("-")[1]) for journal in journals}
    return {process.ppid() for process in psutil.process_iter() if process.pid in processes - {os.getpid()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4, 8], help="numbers of nodes, ascending")
    parser.add_argument("--capacity", type=int, nargs="+", default=[512, 48], help="requests worked on at once")
    parser.add_argument("--in-flight", type=int, default=16, help="open requests per node")
    parser.add_argument(
        "--per-node",
        type=int,
        default=384,
        help="candidates per node, at least 320, because one process can take that many at once",
    )
    parser.add_argument("--latency-s", type=float, default=4.0)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.latency_s))
        return
    largest = max(options.capacity)
    print("| nodes (used) | endpoint's limit | candidates | per second | expected | open requests | measured for, s |")
    print(f"|{'---:|' * 7}")
    with served(__file__, ["--serve", "--latency-s", str(options.latency_s)]) as url, growing_cluster() as cluster:
        for nodes in options.nodes:
            grow(cluster, nodes)
            for capacity in options.capacity:
                if capacity == largest or capacity < nodes * options.in_flight:
                    print(measure(options, url, nodes=nodes, capacity=capacity), flush=True)


if __name__ == "__main__":
    main()
