"""A program that is started again whenever it was killed, with the workers that it has."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from processes import is_running


class Driver:
    """A Python program that resumes what it was killed in."""

    def __init__(self, command: Sequence[str], *, log: Path, workers: Callable[[], Sequence[int]]) -> None:
        """
        Args:
            command: the program's file and its arguments.
            log: takes its output.
            workers: process ids of workers that it ever had; those that run are told apart here.
        """
        self._command, self._log, self._workers = command, log, workers
        self._process = self._start()

    def kill(self, victim: str, *, when: Callable[[], bool]) -> bool:
        """Kill the ``driver`` or its youngest ``worker`` once ``when`` says so.

        Returns:
            False where it had finished before, or had no worker.
        """
        while not when():
            if self._process.poll() is not None:
                return False
            time.sleep(0.02)
        target = self._process.pid if victim == "driver" else max(self._live_workers(), default=None)
        if target is None or self._process.poll() is not None:
            return False
        os.kill(target, signal.SIGKILL)
        if victim == "driver":
            self._process.wait()
            while self._live_workers():  # they outlive their driver for a moment, and work on
                time.sleep(0.1)
            self._process = self._start()
        return True

    def finish(self) -> None:
        """Wait for its end.

        Raises:
            AssertionError: it failed; the message has the end of its log.
        """
        code = self._process.wait(timeout=3600)
        assert code == 0, f"the driver ended with {code}: {self._log.read_text()[-3000:]}"

    def _live_workers(self) -> list[int]:
        return [pid for pid in self._workers() if is_running(pid)]

    def _start(self) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as log:
            return subprocess.Popen([sys.executable, *self._command], stdout=log, stderr=log)
