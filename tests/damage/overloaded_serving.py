"""A service that is asked for ten times as much as it has places for, for as long as ten minutes.

    python tests/damage/overloaded_serving.py --seconds 600

``serve_config.yaml`` as in ``damaged_serving.py``, with few places, and ten clients for each of them, which ask again
as soon as they are answered or refused. Then must hold: every request has an answer in the end, none is wrong, and what
the service's processes hold does not grow.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for the module beside this one

from loaded_service import Load, Service, p50_p99, service

PLACES = 16
"""Requests that run or wait, over both ingress replicas."""
MAX_GROWTH = 1.05
"""Of memory, from the second to the last fifth of the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """What came of it."""

    came_to: Counter[str]
    num_refused: int
    p50_s: float
    p99_s: float
    memory_mib: tuple[float, ...]
    """Medians of each fifth of the time."""
    wrong: tuple[str, ...]
    """What does not hold, in words."""


async def overloaded(served: Service, *, num_clients: int, seconds: float) -> Overload:
    """Ask a service for so long, and look at what its clients got and at its memory."""
    load, ends, memory = Load(served.url), time.monotonic() + seconds, []
    clients = asyncio.create_task(load.run(num_clients))
    while time.monotonic() < ends:
        await asyncio.sleep(seconds / 100)
        memory.append(served.memory_mib())
    load.stopping = True
    await clients
    fifths = tuple(
        statistics.median(memory[len(memory) * part // 5 : len(memory) * (part + 1) // 5]) for part in range(5)
    )
    p50_s, p99_s = p50_p99(load.asked)
    came_to = Counter(each.came_to for each in load.asked)
    wrong = [f"{count} requests {word}" for word, count in came_to.items() if word != "answered"]
    if fifths[4] > fifths[1] * MAX_GROWTH:
        wrong.append(f"memory grew from {fifths[1]:.0f} to {fifths[4]:.0f} MiB")
    return Overload(
        came_to=came_to,
        num_refused=load.num_refused,
        p50_s=p50_s,
        p99_s=p99_s,
        memory_mib=fifths,
        wrong=tuple(wrong),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, service(Path(folder), places=PLACES) as served:
        overload = asyncio.run(overloaded(served, num_clients=10 * PLACES, seconds=given.seconds))
    memory = ", ".join(f"{mib:.0f}" for mib in overload.memory_mib)
    sys.stdout.write(
        f"{10 * PLACES} clients for {PLACES} places, {given.seconds:.0f} s: {dict(overload.came_to)}, "
        f"p50 {overload.p50_s:.2f} s, p99 {overload.p99_s:.2f} s, {overload.num_refused} tries refused; "
        f"memory by fifths of the time {memory} MiB{''.join(f'; {each}' for each in overload.wrong)}\n"
    )
    return 1 if overload.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
