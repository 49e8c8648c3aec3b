"""CPU seconds of processes, and a server in a process of its own."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path


def cpu_seconds() -> float:
    """CPU seconds of this process and of all below it, also of those that have ended."""
    table, own, total = parents_and_cpu(), os.getpid(), 0.0
    for process in table:
        above = process
        while above in table and above != own:
            above = table[above][0]
        total += table[process][1] if above == own else 0.0
    return total


def parents_and_cpu() -> dict[int, tuple[int, float]]:
    """The parent of every process of this machine, and its CPU seconds with those of its children that have ended."""
    table, ticks_per_s = {}, os.sysconf("SC_CLK_TCK")
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # a process may end meanwhile
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            table[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15])) / ticks_per_s
    return table


@contextlib.contextmanager
def served(program: str, arguments: Sequence[str]) -> Iterator[str]:
    """The address of a Python program that prints its port once it serves, and is killed at the end."""
    with subprocess.Popen([sys.executable, program, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()
