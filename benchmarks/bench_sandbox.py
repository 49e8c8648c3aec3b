"""What a program costs in the sandbox, beside the bare interpreter.

    python benchmarks/bench_sandbox.py [--repeats 30]

Prints median and 95th percentile in milliseconds: the interpreter alone, a fresh sandbox with one program, each
further program in the same sandbox, and a call of a loaded function.
"""

import argparse
import statistics
import subprocess
import time
from collections.abc import Callable

from raydebm.sandbox import Limits, Sandbox, Session
from raydebm.sandbox.isolation import Start, interpreter, isolated_starts

PROGRAM, STDIN = "print(2 * int(input()))", b"21\n"


def timed(work: Callable[[], object], repeats: int) -> list[float]:
    """Milliseconds of each run, after one that is not counted."""
    work()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        times.append((time.perf_counter() - started) * 1000)
    return times


def report(name: str, milliseconds: list[float]) -> None:
    slowest = sorted(milliseconds)[int(0.95 * (len(milliseconds) - 1))]
    print(f"{name:58} median {statistics.median(milliseconds):6.1f} ms   95 % {slowest:6.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=30)
    repeats = parser.parse_args().repeats
    bare = [interpreter(), "-I", "-S", "-c", PROGRAM]
    report("interpreter alone", timed(lambda: subprocess.run(bare, input=STDIN, capture_output=True), repeats))
    for start in isolated_starts():

        def fresh(start: Start = start) -> None:
            with Session(start, Limits()) as session:
                assert session.run(PROGRAM, STDIN).stdout == b"42\n"

        report(f"fresh sandbox, {start.name}", timed(fresh, repeats))
    with Sandbox().session() as session:
        report("next program in the same sandbox", timed(lambda: session.run(PROGRAM, STDIN), repeats))
        session.open_program("def double(n): return 2 * n")
        report("call of a loaded function", timed(lambda: session.call("double", [21]), repeats))


if __name__ == "__main__":
    main()
