"""Rate of candidate requests of raydebm's generator, alone and in the Ray Data stage, against raw asyncio.

A mock endpoint in a separate process answers after a fixed latency: with 0.5 s and 256 open requests, a client cannot
exceed 512 requests per second. Rates are measured from the 256th to the last answer, without the start-up. Of small
calls of the stage, as in late waves and later passes, the whole time is measured.

    python benchmarks/bench_generation.py                    # 4,000 requests per client
    python benchmarks/bench_generation.py --no-ray --num-requests 1000
    python benchmarks/bench_generation.py --only-small
"""

import argparse
import asyncio
import itertools
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
from bench_processes import cpu_seconds, served

from raydebm.config import OpenAIGenerator, Recipe, TaskConfig
from raydebm.generators.endpoint.openai_api import EndpointAccess, OpenAIApiGenerator
from raydebm.generators.endpoint.transports import AiohttpTransport, Secret
from raydebm.records import GenerationRequest, Sampling
from raydebm.run.directory import RunDir

IN_FLIGHT = 256
SMALL, NUM_SMALL = 64, 5
"""Number of requests per small call of the stage, and number of such calls."""
SERVER = Path(__file__).resolve().parent.parent / "tests" / "helpers" / "misbehaving_server.py"
_RUNS = itertools.count()


@contextmanager
def mock_endpoint(latency_s: float) -> Iterator[str]:
    with served(str(SERVER), ["--latency-s", str(latency_s)]) as address:
        yield f"{address}/v1"


def make_requests(count: int) -> list[GenerationRequest]:
    run = next(_RUNS)
    return [
        GenerationRequest(
            task="bench",
            problem_id=f"{run}-{i}",
            generator="g",
            messages=({"role": "system", "content": "Think step by step."}, {"role": "user", "content": f"{run}-{i}"}),
            sampling=Sampling(),
            seed=i,
        )
        for i in range(count)
    ]


class Clock:
    """Rate from the 256th to the last answer, and CPU seconds of this process per 1,000 answers."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._cpu = time.process_time()

    def tick(self, count: int = 1) -> None:
        self.times += [time.monotonic()] * count

    def rate(self) -> float:
        return (len(self.times) - IN_FLIGHT) / (self.times[-1] - self.times[IN_FLIGHT - 1])

    def cpu_s_per_1000(self) -> float:
        return 1000 * (time.process_time() - self._cpu) / len(self.times)


async def raw_asyncio(url: str, requests: list[GenerationRequest]) -> Clock:
    """Send the requests with only the necessary work: post, read and parse."""
    clock, slots = Clock(), asyncio.Semaphore(IN_FLIGHT)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask(request: GenerationRequest) -> None:
            body = {"model": "m", "messages": [dict(message) for message in request.messages], "seed": request.seed}
            async with slots, session.post(f"{url}/chat/completions", json=body) as response:
                reply = await response.json()
                assert reply["choices"][0]["message"]["content"]
            clock.tick()

        await asyncio.gather(*(ask(request) for request in requests))
    return clock


def generator_with(transport: type) -> Callable[[str, list[GenerationRequest]], Coroutine[Any, Any, Clock]]:
    async def run(url: str, requests: list[GenerationRequest]) -> Clock:
        config = OpenAIGenerator(name="g", model="m", base_url=url, api_key_env=None, max_in_flight=IN_FLIGHT)
        generator = OpenAIApiGenerator(
            config,
            EndpointAccess(key=Secret(None)),
            transport=lambda config, key: transport(config.base_url, api_key=key.value, headers={}, timeout_s=60.0),
        )
        clock = Clock()
        async for candidate in generator.stream(requests):
            assert candidate.error is None, candidate.error
            clock.tick()
        await generator.aclose()
        return clock

    return run


def through_ray_data(url: str, requests: list[GenerationRequest]) -> Clock:
    """Send the requests by the whole stage: Ray Data, journal, Parquet. CPU seconds are those of the driver."""
    from raydebm.pipeline.ray.generate import generate

    endpoint = OpenAIGenerator(name="g", model="m", base_url=url, api_key_env=None, max_in_flight=IN_FLIGHT)
    recipe = Recipe(name="bench", task=TaskConfig(name="bench"), generators=(endpoint,))
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        generate(
            requests,
            recipe=recipe,
            run=RunDir(folder),
            on_progress=lambda done, total: clock.tick(done - len(clock.times)),
        )
    return clock


def report_small_calls(url: str) -> None:
    """Time small calls, alternately in tasks, which the stage uses for them, and in new actors of Ray Data."""
    from raydebm.pipeline.ray import candidate_blocks

    task_rows = {"tasks": candidate_blocks.HTTP_TASK_ROWS, "new actors": 0}
    seconds: dict[str, list[float]] = {name: [] for name in task_rows}
    cpu_s: dict[str, list[float]] = {name: [] for name in task_rows}
    for name in list(task_rows) * NUM_SMALL:
        candidate_blocks.HTTP_TASK_ROWS = task_rows[name]
        started, cpu = time.monotonic(), cpu_seconds()
        through_ray_data(url, make_requests(SMALL))
        seconds[name].append(time.monotonic() - started)
        cpu_s[name].append(cpu_seconds() - cpu)
    for name, taken in seconds.items():
        middle, cpu = statistics.median(taken), statistics.median(cpu_s[name])
        each = ", ".join(f"{one:.1f}" for one in taken)
        print(f"{SMALL} requests in {name}: median {middle:.1f} s, {cpu:.1f} s CPU of all processes; each {each} s")


def report(name: str, clock: Clock, raw_rate: float) -> None:
    rate = clock.rate()
    print(f"{name:34} {rate:8.0f}/s {100 * rate / raw_rate:6.1f} % {clock.cpu_s_per_1000():8.2f} s CPU per 1,000")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-requests", type=int, default=4000)
    parser.add_argument("--latency-s", type=float, default=0.5)
    parser.add_argument("--no-ray", action="store_true")
    parser.add_argument("--only-small", action="store_true", help="only small calls of the stage")
    options = parser.parse_args()
    with mock_endpoint(options.latency_s) as url:
        if options.only_small:
            with started_ray():
                report_small_calls(url)
            return
        raw = asyncio.run(raw_asyncio(url, make_requests(options.num_requests)))
        raw_rate = raw.rate()
        report("raw asyncio + aiohttp", raw, raw_rate)
        clock = asyncio.run(generator_with(AiohttpTransport)(url, make_requests(options.num_requests)))
        report("raydebm's generator", clock, raw_rate)
        if not options.no_ray:
            with started_ray():
                through_ray_data(url, make_requests(IN_FLIGHT + 64))  # starts Ray Data's helpers
                report("Ray Data stage", through_ray_data(url, make_requests(options.num_requests)), raw_rate)
                report_small_calls(url)


@contextmanager
def started_ray() -> Iterator[None]:
    os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0", RAY_DATA_DISABLE_PROGRESS_BARS="1")
    import ray

    ray.init(address="local", num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield
    ray.shutdown()


if __name__ == "__main__":
    main()
