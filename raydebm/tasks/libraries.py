"""Libraries without a bound on their running time, each in a persistent process.

They may compute for hours on a short text such as ``9^{9^{9^9}}``, and Python cannot interrupt them (``child``). The
kernel kills the process if a request takes too much CPU time, and the next request starts another one. Requests may
come from any thread; threads take turns.
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
"""Wall-clock limit in seconds of a process's start, and of a request, in case the process waits for something."""
MAX_BYTES = 4 * 2**30
_SCRIPT = Path(__file__).with_name("library_child.py")
Name = Literal["math-verify", "reasoning-gym"]
_VERSIONS: Mapping[str, str] = {"reasoning-gym": "0.1.25"}
"""Required versions. The data sets and verifiers of these versions have been reviewed."""


class LibraryError(Exception):
    """A request failed or was stopped, for the reason in the message. Its question is not decided."""


class LibraryProcess:
    """Process of a library, started by the first request. It handles one request at a time."""

    def __init__(self, name: Name, *, wall_s: float = WALL_S) -> None:
        self._name, self._wall_s = name, wall_s
        self._lock = threading.Lock()
        self._child = LastingChild(self._start)

    def ask(self, request: Mapping[str, Any], *, cpu_s: float) -> dict[str, Any]:
        """Reply to a request (see ``library_child``). The limit is CPU time of the process, so that labels do not
        depend on the load of the machine.

        Raises:
            LibraryError: the request took too long or too much memory, or failed; or the process cannot be started.
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
        """Kill the process. Another request would start a new one."""
        with self._lock:
            self._child.close()

    def _start(self) -> Child:
        child = Child(
            [sys.executable, "-P", str(_SCRIPT), self._name, str(MAX_BYTES)],
            stderr=subprocess.DEVNULL,
            # Some data sets iterate over sets of texts: with random hashes, each process would create other questions.
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
    """The ``LibraryProcess`` of a library in this Python process; a forked process gets its own."""
    return _library_of(name, os.getpid())


@functools.cache
def _library_of(name: Name, pid: int) -> LibraryProcess:
    return LibraryProcess(name)
