"""Generation against a server in a storm, while its driver, its worker and its node are killed at random times.

    python tests/damage/damaged_generation.py --seeds 30 --requests 50000

The server answers some requests at once and others only after 429, 5xx, resets, replies that are cut off or no JSON,
and silence; a few it refuses for good. Every second storm is on a cluster of two nodes, of which one is killed, the
others on a Ray that ends with its driver. After the last kill a driver runs to its end, and then must hold: every
request has its row, in order, with the text that belongs to it or the error that the server gave; and no more answers
were paid for twice than were in flight when something was killed.
"""

import argparse
import functools
import json
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside this one

from victims import Driver, Nodes, add_seeds, in_turn, nodes_for, seeds_of

from raydebm.records import Candidate, GenerationRequest, Sampling
from raydebm.run.directory import RunDir

HERE = Path(__file__).parent
SERVER = HERE.parent / "helpers" / "misbehaving_server.py"

BEHAVIOURS: dict[str, float] = {
    "ok": 0.70,
    "429, ok": 0.08,
    "429 after 1, ok": 0.02,
    "500, ok": 0.04,
    "503, 503, ok": 0.04,
    "reset, ok": 0.04,
    "cut off, ok": 0.03,
    "truncated, ok": 0.03,
    "hang, ok": 0.01,
    "400": 0.01,
}
"""What the server does about a request, attempt by attempt, and with which probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """The requests of one run, and how many are in flight at once."""

    seed: int
    num_requests: int
    max_in_flight: int = 32

    def requests(self) -> list[GenerationRequest]:
        """The same for the same seed, in every process."""
        rng = random.Random(self.seed)
        words = rng.choices(list(BEHAVIOURS), list(BEHAVIOURS.values()), k=self.num_requests)
        return [
            GenerationRequest(
                task="toy",
                problem_id=f"p{index}",
                generator="g",
                messages=({"role": "user", "content": f"p{index}: {word}"},),
                sampling=Sampling(max_tokens=12),
                seed=index,
            )
            for index, word in enumerate(words)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What came of one storm."""

    kills: Counter[str]
    """How often the driver, a worker and a node were killed."""
    num_answers: int
    num_failed: int
    paid_twice: int
    """Answers that the server gave beyond one per request."""
    wrong: tuple[str, ...]
    """What does not hold, in words."""
    seconds: float


def weather(storm: Storm, folder: Path, *, kills: Sequence[str], nodes: Nodes | None = None) -> Damage:
    """Let a storm pass, with these processes killed one after another, and look at what is left.

    Args:
        storm: what is asked.
        folder: for the run directory.
        kills: ``driver``, ``worker`` or, where there are nodes, ``node``, each at a random share of the requests.
        nodes: where it happens; None: on a Ray that the driver starts.
    """
    rng, started = random.Random(f"kills {storm.seed}"), time.monotonic()
    marks = sorted(rng.uniform(0.05, 0.9) * storm.num_requests for _ in kills)
    run, done = RunDir(str(folder / "run")), Counter[str]()
    with _process(str(SERVER), stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        base = f"http://127.0.0.1:{int(server.stdout.readline())}"
        driver = Driver(
            [str(HERE / "generation_driver.py"), json.dumps(asdict(storm)), f"{base}/v1", run.root],
            log=folder / "driver.log",
            workers=lambda: _workers(run),
            nodes=nodes,
        )
        for mark, victim in zip(marks, kills, strict=True):
            done[victim] += driver.kill(victim, when=functools.partial(_has_requests, base, mark))
        driver.finish()
        paid = _count(base)["paid"]
    return _judged(storm, list(run.candidates()), paid, done, time.monotonic() - started)


def _workers(run: RunDir) -> list[int]:
    """Processes that have written journals."""
    files = Path(run.uri("candidates", "journal")).glob("*.jsonl")
    return sorted({int(file.name.split("-")[1]) for file in files})


def _judged(storm: Storm, rows: Sequence[Candidate], paid: int, kills: Counter[str], seconds: float) -> Damage:
    requests = storm.requests()
    wrong = []
    if [row.candidate_id for row in rows] != [request.candidate_id for request in requests]:
        wrong.append(f"{len(rows)} rows for {len(requests)} requests, or in another order")
    for request, row in zip(requests, rows, strict=False):
        content = request.messages[-1]["content"]
        expected = None if content.endswith(": 400") else f"answer to {request.problem_id} with seed {request.seed}"
        if row.text != expected:
            wrong.append(f"{content!r} has text {row.text!r} and error {row.error!r}")
    num_answers = sum(row.text is not None for row in rows)
    allowed = sum(kills.values()) * storm.max_in_flight
    if paid - num_answers > allowed:
        wrong.append(f"{paid - num_answers} answers were paid for twice, {allowed} were in flight at the kills")
    return Damage(
        kills=kills,
        num_answers=num_answers,
        num_failed=len(rows) - num_answers,
        paid_twice=paid - num_answers,
        wrong=tuple(wrong),
        seconds=seconds,
    )


def _has_requests(base: str, number: float) -> bool:
    return _count(base)["requests"] >= number


def _count(base: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{base}/count", timeout=60) as reply:
        counts: dict[str, int] = json.loads(reply.read())
    return counts


@contextmanager
def _process(*command: str, stdout: int) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, *command], stdout=stdout) as started:
        try:
            yield started
        finally:
            started.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_seeds(parser)
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--kills", type=int, default=4, help="of each run, in turn")
    given = parser.parse_args()
    broken = 0
    for seed in seeds_of(given):
        storm = Storm(seed=seed, num_requests=given.requests)
        with tempfile.TemporaryDirectory() as folder, nodes_for(seed, log=Path(folder) / "nodes.log") as nodes:
            damage = weather(storm, Path(folder), kills=in_turn(given.kills, nodes=nodes), nodes=nodes)
        broken += bool(damage.wrong)
        sys.stdout.write(
            f"seed {seed}: killed {dict(damage.kills)}, {damage.num_answers} answers, {damage.num_failed} refused, "
            f"{damage.paid_twice} paid twice, {damage.seconds:.0f} s"
            f"{''.join(f'; {each}' for each in damage.wrong[:5])}\n"
        )
        sys.stdout.flush()
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
