"""A server in a process of its own, for as long as a benchmark needs it."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def served(program: str, arguments: Sequence[str]) -> Iterator[str]:
    """The address of a Python program that prints its port once it serves, and is killed at the end."""
    with subprocess.Popen([sys.executable, program, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()
