"""CPU seconds of processes, and a server in a separate process."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence

import psutil


def cpu_seconds() -> float:
    """CPU seconds of this process and its descendants, including those that have ended."""
    own, total = psutil.Process(), 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # the process may have ended
            total += sum(process.cpu_times()[:4])  # user and system time, also of ended children
    return total


@contextlib.contextmanager
def served(program: str, arguments: Sequence[str]) -> Iterator[str]:
    """Run a Python program that prints its port once it serves. Yields its address, and kills it at the end."""
    with subprocess.Popen([sys.executable, program, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()
