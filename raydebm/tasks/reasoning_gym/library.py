"""The optional package reasoning-gym, in a persistent process that can be killed.

Its verifiers may compute for hours on a short answer, and Python's signals reach only the main thread. So they run in a
child process, which the kernel kills if one call takes too long; the next call gets a new child. Works in any thread;
threads of a process take turns.
"""

import functools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from raydebm.tasks.child import Child, ChildLostError, LastingChild

VERSION = "0.1.25"
"""The one version whose data sets and verifiers have been reviewed."""
SCORE_CPU_S = 10.0
"""Limit of one score in CPU seconds of the child, so that a busy machine changes no label."""
ENTRIES_CPU_S = 120.0
"""Limit of generating one data set."""
WALL_S = 300.0
"""Wall-clock limit of a call, in case the child waits for something, and of its start."""
MAX_BYTES = 4 * 2**30

_SCRIPT = Path(__file__).with_name("child.py")


class LibraryError(Exception):
    """A call failed or was killed; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of a data set, in order."""

    category: str
    questions: tuple[tuple[str, str], ...]
    """(question, answer)."""


@functools.cache
def is_installed() -> bool:
    """True if the package reasoning-gym can be imported."""
    return find_spec("reasoning_gym") is not None


class Library:
    """Child process that generates entries and scores answers. It starts with the first call."""

    def __init__(self, *, score_cpu_s: float = SCORE_CPU_S, entries_cpu_s: float = ENTRIES_CPU_S) -> None:
        self._limits = (score_cpu_s, entries_cpu_s)
        self._lock = threading.Lock()
        self._child = LastingChild(self._start)

    def entries(self, dataset: str, config: Mapping[str, Any]) -> Entries:
        """Generate a data set.

        Raises:
            LibraryError: there is no such data set, it refuses the config, or it takes too long.
        """
        reply = self._ask({"entries": dataset, "config": dict(config)})
        return Entries(reply["category"], tuple((question, answer) for question, answer in reply["entries"]))

    def score(self, dataset: str, config: Mapping[str, Any], index: int, *, question: str, answer: str) -> float:
        """Score in [0, 1] of the data set's verifier for an answer to one of its entries.

        Raises:
            LibraryError: it took too long or failed, or this version has another question at the index.
        """
        call = {"score": dataset, "config": dict(config), "index": index, "question": question, "answer": answer}
        return float(self._ask(call)["score"])

    def close(self) -> None:
        """End the child; another call would start a new one."""
        with self._lock:
            self._child.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            try:
                reply = self._child.ask(request, timeout_s=WALL_S)
            except ChildLostError as error:
                raise LibraryError(self._reason(error)) from error
        if "error" in reply:
            raise LibraryError(reply["error"])
        return reply

    def _start(self) -> Child:
        child = Child(
            [sys.executable, "-P", str(_SCRIPT), *map(str, self._limits), str(MAX_BYTES)],
            stderr=subprocess.DEVNULL,
            # Some data sets iterate over sets of text: with random hashes each process would generate other questions.
            env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        reply = child.receive(timeout_s=WALL_S)
        if reply.get("version") == VERSION:
            return child
        child.kill()
        other = f"reasoning-gym {reply.get('version')} is installed, but {VERSION} is needed"
        raise LibraryError(f"{reply.get('error', other)}; pip install 'raydebm[reasoning-gym]'")

    def _reason(self, error: ChildLostError) -> str:
        if error.exit_code == -signal.SIGPROF:
            score, entries = self._limits
            return f"it took more than {score:g} s of CPU time for a score, or {entries:g} s for a data set"
        return f"the process of reasoning-gym {error}"


def library() -> Library:
    """The process's own library, also after a fork."""
    return _library_of(os.getpid())


@functools.cache
def _library_of(pid: int) -> Library:
    return Library()
