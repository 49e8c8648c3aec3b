"""Equivalence of two LaTeX answers, by sympy in a persistent process that can be killed.

sympy may run for hours on a short text ("9^{9^{9^9}}"), and Python's signals reach only the main thread. So comparisons
run in a child process. The kernel kills it if a comparison takes too long, and the next comparison starts a new one.
Works in any thread; the threads of a process take turns.
"""

import functools
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from raydebm.tasks.child import Child, ChildLostError, LastingChild

CPU_S = 5.0
"""Limit of one comparison in CPU seconds of the child, so that a busy machine changes no label."""
WALL_S = 60.0
"""Wall-clock limit of one comparison, in case the child waits for something, and of its start."""
MAX_BYTES = 4 * 2**30

_SCRIPT = Path(__file__).with_name("child.py")


class UndecidedError(Exception):
    """The comparison was killed or failed; the message has the reason. The answer's correctness is unknown."""


class Comparer:
    """Child process that compares one pair of answers at a time. It starts with the first comparison."""

    def __init__(self, *, cpu_s: float = CPU_S, wall_s: float = WALL_S) -> None:
        self._cpu_s, self._wall_s = cpu_s, wall_s
        self._lock = threading.Lock()
        self._child = LastingChild(self._start)

    def is_equal(self, gold: str, answer: str) -> bool:
        """True if the answer is equivalent to gold. Not symmetric: "5" matches "x = 5" as gold.

        Raises:
            UndecidedError: it took too long or too much memory, or the child cannot be started.
        """
        with self._lock:
            try:
                reply = self._child.ask({"gold": gold, "answer": answer}, timeout_s=self._wall_s)
            except ChildLostError as error:
                raise UndecidedError(self._reason(error)) from error
        if "error" in reply:
            raise UndecidedError(reply["error"])
        return bool(reply["equal"])

    def close(self) -> None:
        """End the child; another comparison would start a new one."""
        with self._lock:
            self._child.close()

    def _start(self) -> Child:
        child = Child(
            [sys.executable, "-P", str(_SCRIPT), str(self._cpu_s), str(MAX_BYTES)],
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        reply = child.receive(timeout_s=self._wall_s)
        if "error" in reply:
            child.kill()
            raise UndecidedError(reply["error"])
        return child

    def _reason(self, error: ChildLostError) -> str:
        if error.exit_code == -signal.SIGPROF:
            return f"the comparison took more than {self._cpu_s:g} s of CPU time and was stopped"
        return f"the comparing process {error}"


def comparer() -> Comparer:
    """The process's own comparer, also after a fork."""
    return _comparer_of(os.getpid())


@functools.cache
def _comparer_of(pid: int) -> Comparer:
    return Comparer()
