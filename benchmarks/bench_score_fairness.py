"""How long one candidate waits to be scored while 512 are, next to its time in an idle service.

The service is ``raydebm serve`` on Ray Serve over a finished GSM8K run, such as that of ``make demo-real``. Every text
is another one, so that no energy is kept from before.

python benchmarks/bench_score_fairness.py --run runs/demo-real --rounds 3
"""

import argparse
import asyncio
import platform
import random
import statistics
import time
from pathlib import Path

import httpx

from raydebm.generators.endpoint.vllm_process import free_port
from raydebm.serving.ray.app import start_local
from raydebm.serving.ray.shutdown import stop_serve
from raydebm.serving.settings.app_args import AppArgs

PROBLEM = "A shop sells 14 pens a day for 3 dollars each and pays 1 dollar for each. How much does it earn in 6 days?"
LARGE, LONG, SHORT = 512, 100, 30
"""Candidates of the large request, and words of each; words of the small request's one."""
IDLE_TRIES = 10
PAUSE_S = 0.5


def text(rng: random.Random, num_words: int) -> str:
    """Sentences of sums that nobody has scored before, with an answer at the end."""
    sums = (
        f"{rng.randrange(1000)} times {rng.randrange(1000)} is {rng.randrange(10**6)}." for _ in range(num_words // 5)
    )
    return " ".join([*sums, f"#### {rng.randrange(10**6)}"])


async def score(client: httpx.AsyncClient, candidates: list[str]) -> float:
    """Seconds until the candidates have their energies."""
    started = time.perf_counter()
    reply = await client.post("/v1/score", json={"problem": PROBLEM, "candidates": candidates})
    reply.raise_for_status()
    return time.perf_counter() - started


async def one_round(client: httpx.AsyncClient, rng: random.Random) -> tuple[list[float], list[float], float]:
    """Times of small requests in the idle service and next to the large one, and the large one's."""
    idle = [await score(client, [text(rng, SHORT)]) for _ in range(IDLE_TRIES)]
    busy = []
    async with asyncio.TaskGroup() as group:
        large = group.create_task(score(client, [text(rng, LONG) for _ in range(LARGE)]))
        await asyncio.sleep(PAUSE_S)
        while not large.done():
            busy.append(await score(client, [text(rng, SHORT)]))
            await asyncio.sleep(PAUSE_S / 5)
    return idle, busy, large.result()


async def rounds(url: str, number: int) -> None:
    """Ask, and print a line for each round."""
    rng = random.Random(0)
    async with httpx.AsyncClient(base_url=url, timeout=600) as client:
        await one_round(client, rng)  # the first slices find out how many texts take their time
        for index in range(number):
            idle, busy, large_s = await one_round(client, rng)
            alone, meanwhile = statistics.median(idle), statistics.median(busy)
            print(
                f"round {index + 1}: {LARGE} candidates {large_s:.1f} s; one candidate, idle {alone * 1e3:.0f} ms, "
                f"meanwhile {meanwhile * 1e3:.0f} ms (worst {max(busy) * 1e3:.0f}, n = {len(busy)}): "
                f"{meanwhile / alone:.1f} times, worst {max(busy) / alone:.1f} times",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", default="runs/demo-real")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    port = free_port("127.0.0.1")
    args = AppArgs(run_dir=str(Path(given.run).absolute()), device="cpu", records=None)
    url = start_local(args, port=port)
    try:
        print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}")
        asyncio.run(rounds(url, given.rounds))
    finally:
        stop_serve()


if __name__ == "__main__":
    main()
