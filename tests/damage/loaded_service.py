"""A service whose processes can be killed one by one, an endpoint that sells to it, and clients that ask."""

import asyncio
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "service"))  # for a run and an endpoint
sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

import httpx
import yaml
from hand_written_run import PUZZLE
from processes import kill_all, kill_node, nodes_below, processes_below
from tiny_service_run import make_models, make_run
from upstream import Upstream

from raydebm.generators.endpoint.vllm import free_port
from raydebm.run.directory import RunDir
from raydebm.service.spending import NANO, Ledger

HERE = Path(__file__).parent
CONFIG = HERE.parents[1] / "serve_config.yaml"
NODE = "node"
"""A raylet and all that runs below it, as when a machine loses its power; another node comes in its place."""
VICTIMS = {
    "scorer": "ServeReplica:raydebm:ScorerDeployment",
    "generator": "ServeReplica:raydebm:GeneratorDeployment",
    "checker": "ServeReplica:raydebm:ConstraintDeployment",
    "ingress": "ServeReplica:raydebm:TriageIngress",
    "controller": "ServeController",
    "proxy": "ProxyActor",
}
"""Processes that can be killed, and what stands in the command line of each."""
SERVICE = "service"
"""Everything, killed at once and started again."""
USD_PER_TOKEN = 0.01
SOLD_TOKENS = 3
"""Completion tokens of an answer of ``Upstream``."""
MAX_TOKENS = 8
PATIENCE_S = 300.0
"""A request that has no answer by then is lost."""
ANSWER = '{"Ava": "knave", "Zoey": "knight"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request of a client, all its tries together."""

    begun: float
    ended: float
    came_to: str
    """``answered``, ``wrong``, ``lost`` (an error that says not to repeat it, or no answer in time), or ``spent`` (the
    day's ceiling is reached)."""
    detail: str = ""


def p50_p99(asked: Iterable[Asked]) -> tuple[float, float]:
    """Seconds that answers took, in the middle and at the end; NaN for fewer than two."""
    times = [each.ended - each.begun for each in asked if each.came_to == "answered"]
    cuts = statistics.quantiles(times, n=100, method="inclusive") if len(times) > 1 else [math.nan] * 99
    return cuts[49], cuts[98]


@dataclass(slots=True)
class Load:
    """Clients that ask one request after another."""

    url: str
    asked: list[Asked] = field(default_factory=list)
    num_refused: int = 0
    """Tries that were answered 503."""
    stopping: bool = False

    async def run(self, num_clients: int) -> None:
        limits = httpx.Limits(max_connections=num_clients)
        async with httpx.AsyncClient(timeout=PATIENCE_S, limits=limits, base_url=self.url) as client:
            await asyncio.gather(*(self._client(client, number) for number in range(num_clients)))

    async def _client(self, client: httpx.AsyncClient, number: int) -> None:
        count = 0
        while not self.stopping:
            begun, count = time.monotonic(), count + 1
            came_to, detail = await self._ask(client, seed=number * 1_000_000 + count)
            self.asked.append(Asked(begun=begun, ended=time.monotonic(), came_to=came_to, detail=detail))
            if came_to == "spent":
                return

    async def _ask(self, client: httpx.AsyncClient, *, seed: int) -> tuple[str, str]:
        body = {"problem": PUZZLE, "seed": seed, "num_samples": 1, "max_passes": 1}
        give_up, last = time.monotonic() + PATIENCE_S, ""
        while time.monotonic() < give_up:
            try:
                reply = await client.post("/v1/triage", json=body)
            except httpx.TransportError as error:
                last = type(error).__name__
            else:
                if reply.status_code == 200:
                    return _judged(reply.json())
                last = f"{reply.status_code} {_code(reply)}"
                self.num_refused += reply.status_code == 503
                if last == "429 insufficient_quota":
                    return "spent", last
                if reply.headers.get("x-should-retry") == "false":
                    return "lost", last
            await asyncio.sleep(0.2)
        return "lost", f"no answer within {PATIENCE_S:g} s; the last: {last}"


def _judged(decided: dict[str, Any]) -> tuple[str, str]:
    if decided["decision"] == "accept" and decided["answer"] == ANSWER:
        return "answered", ""
    return "wrong", json.dumps({name: decided.get(name) for name in ("decision", "answer", "reason")})


def _code(reply: httpx.Response) -> str:
    try:
        return str(reply.json()["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return reply.text[:80]


class Service:
    """The service in a process of its own, which is started again when it was killed."""

    def __init__(
        self,
        folder: Path,
        upstream: Upstream,
        *,
        ceiling_usd: float | None,
        places: int,
        policies: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """
        Args:
            folder: empty, for the run, the configuration and what the service writes.
            upstream: its only generator.
            ceiling_usd: for everybody on one day; None: money is not limited.
            places: requests that run or wait, over both ingress replicas; others are answered 503.
            policies: named changes of the policy.
        """
        self._folder, self._port, self._log = folder, free_port("127.0.0.1"), folder / "service.log"
        self._places, self._policies = places, policies
        self._upstream, self._ledger, self.ceiling_usd = upstream, folder / "ledger.sqlite", ceiling_usd
        run = RunDir(make_run(folder, *make_models(folder / "models")))
        sold = {"kind": "openai", "name": "late", "model": "late", "base_url": upstream.url, "api_key_env": None}
        prices = {"usd_per_million_tokens": (0.0, USD_PER_TOKEN * 1e6)}
        generation = {"num_samples": 1, "max_tokens": MAX_TOKENS}
        recipe = {**run.read_json("recipe.json"), "generators": [{**sold, **prices}], "generation": generation}
        run.write_json(recipe, "recipe.json")
        (folder / "serve.json").write_text(json.dumps(self._tree(run.root)), encoding="utf-8")
        self._process = self._start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def num_sold(self) -> int:
        """Requests that reached the endpoint, all of which it may bill."""
        return len(self._upstream.sent_to("late"))

    @property
    def sold_usd(self) -> float:
        return self.num_sold * SOLD_TOKENS * USD_PER_TOKEN

    def spent_usd(self) -> float:
        """Of this day, by the ledger."""
        ledger = Ledger(str(self._ledger))
        try:
            return ledger.spent("service").nano_usd / NANO
        finally:
            ledger.close()

    def kill(self, victim: str) -> list[int]:
        """Kill one process of a kind, or all; returns the process ids."""
        pids = [*self._processes(), self._process.pid] if victim == SERVICE else self.found(victim)[:1]
        if victim == NODE:
            kill_node(pids[0])
            self._tell("node")
        else:
            kill_all(pids)
        if victim == SERVICE:
            self._process.wait()
            self._process = self._start()
        return pids

    def update(self) -> None:
        """Replace all replicas, the old ones once the new ones run."""
        self._tell("update")

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def found(self, victim: str) -> list[int]:
        """Processes of a kind that run, those with most replicas below them first."""
        if victim == NODE:
            pids = nodes_below(self._process.pid)
        else:
            pids = [pid for pid, command in self._processes().items() if VICTIMS[victim] in command]
        return sorted(
            pids, key=lambda pid: -sum("ServeReplica" in command for command in processes_below(pid).values())
        )

    def memory_mib(self) -> float:
        """What all of its processes hold, shared pages counted once per process."""
        pages = 0
        for pid in self._processes():
            try:
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def close(self) -> None:
        kill_all([*self._processes(), self._process.pid])
        self._process.wait()

    def _processes(self) -> dict[int, str]:
        return processes_below(self._process.pid)

    def _tree(self, run_dir: str) -> dict[str, Any]:
        tree = yaml.safe_load(CONFIG.read_text())
        limits = {
            "per_day": {"usd": self.ceiling_usd},
            "ledger_file": str(self._ledger),
            "max_running": self._places // 4,
        }
        application = tree["applications"][0]
        application["args"] |= {
            "run_dir": run_dir,
            "device": "cpu",
            "limits": limits,
            "policies": dict(self._policies),
            "records": {"folder": str(self._folder / "records")},
        }
        return tree

    def _start(self) -> "subprocess.Popen[bytes]":
        environ = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        environ |= {"RAY_worker_niceness": "0", "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(HERE / "serving_driver.py"), str(self._folder / "serve.json"), str(self._port)]
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise AssertionError(f"the service did not start: {self._log.read_text()[-3000:]}")
        return process


@contextmanager
def service(
    folder: Path,
    *,
    ceiling_usd: float | None = None,
    places: int = 240,
    policies: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> Iterator[Service]:
    """A service that runs, with what it buys from."""
    upstream = Upstream()
    try:
        served = Service(folder, upstream, ceiling_usd=ceiling_usd, places=places, policies=policies)
        try:
            yield served
        finally:
            served.close()
    finally:
        upstream.close()
