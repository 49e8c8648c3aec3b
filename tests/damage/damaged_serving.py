"""A service under constant load while its processes are killed at random times.

    python tests/damage/damaged_serving.py --seeds 30

``serve_config.yaml`` over a tiny run, on a Ray of its own, with an endpoint that sells candidates and counts them, and
with a ceiling for the day where one is given. Clients ask all the time, as ``raydebm_client`` does: what
fails and may be repeated is repeated, and paid for again. Meanwhile replicas, proxy, controller and a whole node
are killed (``SIGKILL``), all replicas are replaced, and the whole service is killed and started again. Then must hold:
every answer is right, only requests that were in flight in what was killed may be without one, and neither the endpoint
nor the ledger has seen more than the ceiling.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside this one

from loaded_service import NODE, SERVICE, VICTIMS, Asked, Load, Service, p50_p99, service
from victims import add_seeds, seeds_of

UPDATE = "update"
"""All replicas are replaced, the old ones once the new ones run."""
DAMAGES = (*VICTIMS, NODE, UPDATE, SERVICE)
RECOVERY_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What was asked between two moments."""

    name: str
    num_answered: int
    p50_s: float
    p99_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What came of it for the clients."""

    windows: tuple[Window, ...]
    came_to: Counter[str]
    """How many requests, by ``Asked.came_to``."""
    wrong: tuple[str, ...]
    """What does not hold, in words."""
    seconds: float


async def damaged(served: Service, *, seed: int, victims: Sequence[str], num_clients: int, window_s: float) -> Damage:
    """Load a service, damage it, and look at what its clients got.

    Args:
        victims: of ``DAMAGES``, one after another.
        window_s: how long it is left alone before the first, after each once answers come again, and once more after
            the last.
    """
    rng, started, load = random.Random(seed), time.monotonic(), Load(served.url)
    clients = asyncio.create_task(load.run(num_clients))
    marks = [("before", started)]
    await asyncio.sleep(window_s)
    for victim in victims:
        await asyncio.sleep(rng.uniform(0, 1))
        marks.append((victim, time.monotonic()))
        await _damage(served, victim)
        await _recovered(load, clients, since=time.monotonic())
        await asyncio.sleep(window_s)
    marks.append(("after", time.monotonic()))
    await asyncio.sleep(window_s)
    load.stopping = True
    await clients
    ends = [*(at for _, at in marks[1:]), time.monotonic()]
    return Damage(
        windows=tuple(_window(name, load.asked, at, end) for (name, at), end in zip(marks, ends, strict=True)),
        came_to=Counter(asked.came_to for asked in load.asked),
        wrong=(
            *_faults(load.asked, victims, num_clients, is_limited=served.ceiling_usd is not None),
            *_overspent(served),
        ),
        seconds=time.monotonic() - started,
    )


async def _damage(served: Service, victim: str) -> None:
    """Do it, and wait until as many processes of the kind run again as before."""
    if victim == UPDATE:
        served.update()
    elif victim == SERVICE:
        await asyncio.to_thread(served.kill, SERVICE)
    else:
        num_before, killed = len(served.found(victim)), served.kill(victim)
        deadline = time.monotonic() + RECOVERY_S
        while len(set(served.found(victim)) - set(killed)) < num_before and time.monotonic() < deadline:
            await asyncio.sleep(0.1)


async def _recovered(load: Load, clients: "asyncio.Task[None]", *, since: float) -> None:
    """Until a request that was sent since has come to something, or there are no clients left that ask."""
    deadline = since + RECOVERY_S
    while (
        not clients.done() and not any(each.begun > since for each in load.asked[-1:]) and time.monotonic() < deadline
    ):
        await asyncio.sleep(0.1)


def _window(name: str, asked: Sequence[Asked], begin: float, end: float) -> Window:
    within = [each for each in asked if begin <= each.begun < end]
    p50_s, p99_s = p50_p99(within)
    num_answered = sum(each.came_to == "answered" for each in within)
    return Window(name=name, num_answered=num_answered, p50_s=p50_s, p99_s=p99_s)


def _faults(asked: Sequence[Asked], victims: Sequence[str], num_clients: int, *, is_limited: bool) -> Iterator[str]:
    counts = Counter(each.came_to for each in asked)
    details = Counter(each.detail for each in asked if each.came_to in {"wrong", "lost"}).most_common(3)
    if counts["wrong"]:
        yield f"{counts['wrong']} wrong answers: {details}"
    # Answers in the memory of an ingress or on their way through the proxy can be lost. So can candidates in a
    # generator, where money is limited, because they are not asked for twice then. Clients are told.
    holders = {"ingress", "proxy", NODE, SERVICE} | ({"generator"} if is_limited else set())
    allowed = sum(num_clients for victim in victims if victim in holders)
    if counts["lost"] > allowed:
        yield f"{counts['lost']} requests lost, and at most {allowed} were in flight in what was killed: {details}"
    if any(each.detail.startswith("no answer within") for each in asked):
        yield f"requests without an answer: {details}"


def _overspent(served: Service) -> Iterator[str]:
    if served.ceiling_usd is None:
        return
    sold, spent = served.sold_usd, served.spent_usd()
    if not sold - 1e-6 <= spent <= served.ceiling_usd + 1e-6:
        yield f"sold for {sold:.2f} USD; the ledger has {spent:.2f}, below a ceiling of {served.ceiling_usd:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_seeds(parser)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--window-s", type=float, default=10.0)
    parser.add_argument("--ceiling-usd", type=float, help="for the day; default: money is not limited")
    parser.add_argument("--victims", nargs="+", choices=DAMAGES, default=DAMAGES)
    given = parser.parse_args()
    broken = 0
    with tempfile.TemporaryDirectory() as folder, service(Path(folder), ceiling_usd=given.ceiling_usd) as served:
        for seed in seeds_of(given):
            victims = random.Random(f"order {seed}").sample(given.victims, len(given.victims))
            options = {"victims": victims, "num_clients": given.clients, "window_s": given.window_s}
            damage = asyncio.run(damaged(served, seed=seed, **options))
            broken += bool(damage.wrong)
            _show(seed, damage, served)
    return 1 if broken else 0


def _show(seed: int, damage: Damage, served: Service) -> None:
    windows = ", ".join(
        f"{each.name} {each.num_answered} ({each.p50_s:.2f}, {each.p99_s:.2f})" for each in damage.windows
    )
    sys.stdout.write(
        f"seed {seed}: {dict(damage.came_to)}; answers (p50, p99 in s): {windows}; {served.num_sold} sold so far, "
        f"{served.memory_mib():.0f} MiB, {damage.seconds:.0f} s{''.join(f'; {each}' for each in damage.wrong)}\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
