"""Overhead of the triage service over an empty graph of Ray Serve, with one to many clients.

A scripted endpoint answers each request after a fixed delay, with one of two texts. The empty graph has the same
deployments with the same calls between them, but only waits as long as the endpoint and the scorer take. The benchmark
needs a finished Knights & Knaves run, such as the demo's.

python benchmarks/bench_triage.py --run runs/demo --clients 1 2 4 8 16 --seconds 15
python benchmarks/bench_triage.py --run runs/demo --clients 8 --flame docs/images/triage.svg   # needs py-spy
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from multiprocessing import Process, Queue
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import ray
from fastapi import FastAPI
from ray import serve
from ray.serve.config import HTTPOptions
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import LoggingConfig
from ray.util.state import list_actors

from raydebm.generators.endpoint.vllm import free_port
from raydebm.run.directory import RunDir
from raydebm.scorer.ensemble import EnsembleScorer
from raydebm.service.ray.app import start_local, stop_serve
from raydebm.service.settings import AppArgs

Handle: TypeAlias = "DeploymentHandle[Any]"
TEXTS = ('Ava contradicts herself. {"Ava": "knave", "Zoey": "knight"}', '{"Ava": "knight", "Zoey": "knight"}')
PROBLEM = (
    "A very special island is inhabited only by knights and knaves. Knights always tell the truth, and knaves always "
    'lie. You meet 2 inhabitants: Ava, and Zoey. Ava said, "Zoey is a knave and Ava is a knave." Zoey remarked, '
    '"Ava is a knave". So who is a knight and who is a knave?'
)
REQUEST = {"problem": PROBLEM, "num_samples": 4, "max_passes": 1}


@dataclass(frozen=True, kw_only=True)
class Load:
    """Rate and latencies of clients that send the next request after each answer."""

    num_clients: int
    per_second: float
    milliseconds: tuple[float, ...]

    def percentile(self, share: float) -> float:
        return sorted(self.milliseconds)[min(len(self.milliseconds) - 1, int(share * len(self.milliseconds)))]


# ---- the scripted endpoint, in a separate process ------------------------------------------------------------------


def endpoint(port: int, delay_s: float) -> None:
    """Answer every POST with a chat completion, ``delay_s`` after its arrival."""
    asyncio.run(_listen(port, delay_s))


async def _listen(port: int, delay_s: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                )
                body = json.loads(await reader.readexactly(length))
                await asyncio.sleep(delay_s)
                content = _completion(body["seed"])
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
                writer.write(f"Content-Length: {len(content)}\r\n\r\n".encode() + content)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    await server.serve_forever()


def _completion(seed: int) -> bytes:
    message = {"role": "assistant", "content": TEXTS[seed % len(TEXTS)]}
    usage = {"prompt_tokens": 80, "completion_tokens": 20, "total_tokens": 100}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return json.dumps(
        {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": choices, "usage": usage}
    ).encode()


# ---- the load, in a separate process --------------------------------------------------------------------------------


def ask(url: str, num_clients: int, seconds: float, answers: "Queue[Any]") -> None:
    """Send triage requests from ``num_clients`` clients, and put (requests per second, latencies in seconds)."""
    answers.put(asyncio.run(_ask(url, num_clients, seconds)))


async def _ask(url: str, num_clients: int, seconds: float) -> tuple[float, list[float]]:
    latencies: list[float] = []
    limits = httpx.Limits(max_connections=num_clients)
    async with httpx.AsyncClient(timeout=120, limits=limits) as client:
        started = time.perf_counter()

        async def one_client() -> None:
            while time.perf_counter() - started < seconds:
                sent = time.perf_counter()
                reply = await client.post(f"{url}/v1/triage", json=REQUEST)
                reply.raise_for_status()
                latencies.append(time.perf_counter() - sent)

        await asyncio.gather(*(one_client() for _ in range(num_clients)))
        return len(latencies) / (time.perf_counter() - started), latencies


def load_of(url: str, num_clients: int, seconds: float) -> Load:
    answers: Queue[Any] = Queue()
    process = Process(target=ask, args=(url, num_clients, seconds, answers))
    process.start()
    per_second, latencies = answers.get()
    process.join()
    return Load(num_clients=num_clients, per_second=per_second, milliseconds=tuple(1000 * each for each in latencies))


# ---- the empty graph ------------------------------------------------------------------------------------------------


class EmptyGenerator:
    async def stream(self, delay_s: float) -> AsyncIterator[list[str]]:
        await asyncio.sleep(delay_s)
        yield list(TEXTS) * 2


class EmptyPart:
    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s

    async def work(self, texts: list[str]) -> list[str]:
        await asyncio.sleep(self._wait_s)
        return texts


def scoring_seconds(run: str) -> float:
    """Median seconds in which the run's scorer reads the two texts, alone in this process."""
    scorer = EnsembleScorer.load(Path(run) / "scorer")
    times = []
    for _ in range(20):
        started = time.perf_counter()
        scorer.score([(PROBLEM, text) for text in TEXTS])
        times.append(time.perf_counter() - started)
    return statistics.median(times)


empty_api = FastAPI()


class EmptyIngress:
    """Samples candidates, then checks and scores them concurrently, like a triage request of one wave."""

    def __init__(self, generator: Handle, checker: Handle, scorer: Handle, delay_s: float) -> None:
        self._generator, self._checker, self._scorer, self._delay_s = generator, checker, scorer, delay_s

    @empty_api.post("/v1/triage")
    async def triage(self, request: dict[str, Any]) -> dict[str, Any]:
        candidates: Any = self._generator.options(stream=True).stream.remote(self._delay_s)
        checked = [
            await asyncio.gather(self._checker.work.remote(block), self._scorer.work.remote(block))
            async for block in candidates
        ]
        return {"found": checked, "problem": request["problem"]}


def _bound(kind: type, name: str, *arguments: Any) -> Any:
    return serve.deployment(name=name, max_ongoing_requests=256)(kind).bind(*arguments)


def start_empty(delay_s: float, scoring_s: float) -> str:
    """Start the empty graph, and return its base URL."""
    port = free_port("127.0.0.1")
    quiet = LoggingConfig(enable_access_log=False)
    serve.start(http_options=HTTPOptions(host="127.0.0.1", port=port), logging_config=quiet)
    parts = (
        _bound(EmptyGenerator, "generator"),
        _bound(EmptyPart, "checker", 0.0),
        _bound(EmptyPart, "scorer", scoring_s),
    )
    graph = _bound(serve.ingress(empty_api)(EmptyIngress), "ingress", *parts, delay_s)
    serve.run(graph, name="empty", route_prefix="/", logging_config=quiet)
    return f"http://127.0.0.1:{port}"


# ---- the service ----------------------------------------------------------------------------------------------------


def scripted_run(original: str, folder: Path, port: int) -> str:
    """Copy the parts of a run that a service needs, with the scripted endpoint as the only generator."""
    run = RunDir(str(folder))
    for name in ("scorer", "calibration", "problems"):
        shutil.copytree(Path(original) / name, folder / name)
    recipe = RunDir(original).read_json("recipe.json")
    generator = {"kind": "openai", "name": "scripted", "model": "m", "base_url": f"http://127.0.0.1:{port}/v1"}
    recipe["generators"] = [{**generator, "api_key_env": None, "max_in_flight": 512}]
    recipe["decision"] = {**recipe["decision"], "regenerate_with": None}
    run.write_json(recipe, "recipe.json")
    return run.root


def ingress_pid() -> int:
    actors = [each for each in list_actors(detail=True) if "Ingress" in str(each.name) and each.state == "ALIVE"]
    return next(each.pid for each in actors if each.pid is not None)


def flame_graph(url: str, file: Path, *, num_clients: int, seconds: float) -> None:
    command = [
        "py-spy",
        "record",
        "--pid",
        str(ingress_pid()),
        "--duration",
        str(int(seconds)),
        "--rate",
        "100",
        "--gil",
    ]
    with subprocess.Popen([*command, "--format", "flamegraph", "--output", str(file)]) as profiler:
        load_of(url, num_clients, seconds + 3)
        profiler.wait()


def _environment(delay_ms: float) -> str:
    return (
        f"Python {platform.python_version()}, Ray {ray.__version__}, {os.cpu_count()} cores; endpoint {delay_ms:g} ms\n"
        "| what | clients | requests/s | p50, ms | p99, ms |\n|---|---:|---:|---:|---:|"
    )


def _measure(what: str, url: str, options: argparse.Namespace) -> None:
    load_of(url, 1, 3)  # warms up connections and energies
    for count in options.clients:
        load = load_of(url, count, options.seconds)
        p50, p99 = statistics.median(load.milliseconds), load.percentile(0.99)
        print(f"| {what} | {count} | {load.per_second:.1f} | {p50:.1f} | {p99:.1f} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", required=True, help="finished Knights & Knaves run")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--delay-ms", type=float, default=50, help="delay of the scripted endpoint")
    parser.add_argument("--flame", type=Path, help="file for a flame graph of the ingress")
    options = parser.parse_args(arguments)
    port = free_port("127.0.0.1")
    scripted = Process(target=endpoint, args=(port, options.delay_ms / 1000), daemon=True)
    scripted.start()
    os.environ.setdefault("RAY_worker_niceness", "0")
    with tempfile.TemporaryDirectory() as folder:
        run_dir = scripted_run(options.run, Path(folder) / "run", port)
        # Without an address, Ray would try a cluster whose address a killed process has left behind.
        ray.init(address="local", num_cpus=8, include_dashboard=options.flame is not None, log_to_driver=False)
        try:
            scoring_s = scoring_seconds(run_dir)
            print(f"scoring alone: {1000 * scoring_s:.1f} ms")
            print(_environment(options.delay_ms))
            url = start_empty(options.delay_ms / 1000, scoring_s)
            _measure("empty graph", url, options)
            stop_serve()
            url = start_local(AppArgs(run_dir=run_dir, device="cpu"), port=free_port("127.0.0.1"))
            _measure("triage", url, options)
            if options.flame is not None:
                flame_graph(url, options.flame, num_clients=max(options.clients), seconds=options.seconds)
        finally:
            stop_serve()
            ray.shutdown()
            scripted.terminate()


if __name__ == "__main__":
    main()
