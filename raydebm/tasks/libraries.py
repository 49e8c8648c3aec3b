"""Libraries that may compute for hours on a short text ("9^{9^{9^9}}"), each in a persistent process.

Python's signals reach only the main thread, and only between Python's own steps; the kernel can kill a process. So it
ends the process if a request takes too much CPU time, and the next request starts another one. Works in any thread;
the threads of a process take turns.
"""

import functools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from raydebm.tasks.child import Child, ChildLostError, LastingChild

WALL_S = 300.0
"""Wall-clock limit of a request, in case the process waits for something, and of its start."""
MAX_BYTES = 4 * 2**30
_SCRIPT = Path(__file__).with_name("library_child.py")
Name = Literal["math-verify", "reasoning-gym"]
_VERSIONS: Mapping[str, str] = {"reasoning-gym": "0.1.25"}
"""Versions that are required because their data sets and verifiers have been reviewed."""


class LibraryError(Exception):
    """A request failed or was killed; the message has the reason. The question stays undecided."""


class LibraryProcess:
    """Process of one library, for one request at a time. It starts with the first request."""

    def __init__(self, name: Name, *, wall_s: float = WALL_S) -> None:
        self._name, self._wall_s = name, wall_s
        self._lock = threading.Lock()
        self._child = LastingChild(self._start)

    def ask(self, request: Mapping[str, Any], *, cpu_s: float) -> dict[str, Any]:
        """Reply to a request (see ``library_child``). Its limit is CPU time of the process, so that a busy machine
        changes no label.

        Raises:
            LibraryError: it took too long or too much memory, failed, or the process cannot be started.
        """
        with self._lock:
            try:
                reply = self._child.ask({**request, "cpu_s": cpu_s}, timeout_s=self._wall_s)
            except ChildLostError as error:
                reason = f"the process of {self._name} {error}"
                if error.exit_code == -signal.SIGPROF:
                    reason = f"it took more than {cpu_s:g} s of CPU time and was stopped"
                raise LibraryError(reason) from error
        if "error" in reply:
            raise LibraryError(reply["error"])
        return reply

    def close(self) -> None:
        """End the process; another request would start a new one."""
        with self._lock:
            self._child.close()

    def _start(self) -> Child:
        child = Child(
            [sys.executable, "-P", str(_SCRIPT), self._name, str(MAX_BYTES)],
            stderr=subprocess.DEVNULL,
            # Some data sets iterate over sets of text: with random hashes each process would generate other questions.
            env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        reply = child.receive(timeout_s=self._wall_s)
        wanted = _VERSIONS.get(self._name)
        if "error" not in reply and wanted in (None, reply["version"]):
            return child
        child.kill()
        other = f"{self._name} {reply.get('version')} is installed, but {wanted} is needed"
        raise LibraryError(f"{reply.get('error', other)}; pip install '{self._name}{f'=={wanted}' if wanted else ''}'")


def library(name: Name) -> LibraryProcess:
    """The ``LibraryProcess`` of this Python process; a forked process gets its own."""
    return _library_of(name, os.getpid())


@functools.cache
def _library_of(name: Name, pid: int) -> LibraryProcess:
    return LibraryProcess(name)
