"""A program that is started again whenever it was killed, with its workers and the nodes that these run on."""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from processes import is_running, kill_all, kill_node, nodes_below, processes_below

HERE = Path(__file__).parent


class Nodes:
    """A Ray cluster whose nodes can be killed."""

    def __init__(self, process: "subprocess.Popen[str]", address: str) -> None:
        self._process, self.address = process, address

    def kill(self, worker: int) -> bool:
        """Kill the node that a process runs on, with everything on it; another node comes in its place.

        Returns:
            False where the process runs on none.
        """
        node = next((node for node in nodes_below(self._process.pid) if worker in processes_below(node)), None)
        if node is None:
            return False
        kill_node(node)
        assert self._process.stdin is not None
        self._process.stdin.write("node\n")
        self._process.stdin.flush()
        return True


def add_seeds(parser: argparse.ArgumentParser) -> None:
    """Let the command say which seeds to run; ``seeds_of`` reads it."""
    parser.add_argument("--seeds", type=int, default=30, help="how many (default: 30)")
    parser.add_argument("--first-seed", type=int, default=0, help="go on from this one, where others were run before")


def seeds_of(given: argparse.Namespace) -> range:
    """The seeds that were asked for."""
    return range(given.first_seed, given.first_seed + given.seeds)


@contextmanager
def nodes_for(seed: int, *, log: Path) -> Iterator[Nodes | None]:
    """Two nodes for every second seed; the driver of the others starts a Ray that ends with it."""
    if seed % 2:
        with ray_nodes(2, log=log) as nodes:
            yield nodes
    else:
        yield None


def in_turn(number: int, *, nodes: Nodes | None) -> list[str]:
    """What is killed, one after another."""
    kinds = ("worker", "driver") if nodes is None else ("node", "driver", "worker")
    return [kinds[index % len(kinds)] for index in range(number)]


@contextmanager
def ray_nodes(number: int, *, log: Path) -> Iterator[Nodes]:
    """A cluster of so many nodes and a head without CPUs, which ends with the block."""
    environ = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    command = [sys.executable, str(HERE / "nodes_driver.py"), str(number)]
    with (
        log.open("ab") as errors,
        subprocess.Popen(
            command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, f"the cluster did not start: {log.read_text()[-3000:]}"
            yield Nodes(process, address)
        finally:
            kill_all([*processes_below(process.pid), process.pid])


class Driver:
    """A Python program that resumes what it was killed in."""

    def __init__(
        self, command: Sequence[str], *, log: Path, workers: Callable[[], Sequence[int]], nodes: Nodes | None = None
    ) -> None:
        """
        Args:
            command: the program's file and its arguments; where there are nodes, their address follows.
            log: takes its output.
            workers: process ids of workers that it ever had; those that run are told apart here.
            nodes: where its workers run; None: on a Ray that it starts itself.
        """
        self._command = [*command, *([nodes.address] if nodes else [])]
        self._log, self._workers, self._nodes = log, workers, nodes
        self._process = self._start()

    def kill(self, victim: str, *, when: Callable[[], bool]) -> bool:
        """Kill the ``driver``, its youngest ``worker`` or that worker's ``node`` once ``when`` says so.

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
        if victim == "node":
            return self._nodes is not None and self._nodes.kill(target)
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
