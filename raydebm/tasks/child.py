"""Helper processes that exchange JSON lines with this one, and are killed if they do not reply in time.

They are for work that Python cannot interrupt: a checker that hangs, a library that computes for hours. Python handles
signals only in the main thread and only between its own instructions, but a process can always be killed.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

OWN_END_S = 5.0
"""Seconds from its deadline until a helper process ends itself, if its parent has not killed it."""

START_S = 60.0
"""Time limit in seconds for a helper module to start and import a task's plug-in."""


def written(descriptor: int, content: bytes, deadline: float) -> bool:
    """Write to a non-blocking pipe until ``deadline`` (``time.monotonic``). Returns False if the pipe did not take
    everything: its buffer is small, and a hung process does not read."""
    view = memoryview(content)
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_WRITE)
        while view and selector.select(max(0.0, deadline - time.monotonic())):
            view = view[os.write(descriptor, view) :]
    return not view


def arrived(descriptor: int, size: int, deadline: float) -> bytes | None:
    """Read the next bytes of a pipe, at most ``size``. Empty at its end, None if none arrives before the deadline."""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        is_ready = selector.select(max(0.0, deadline - time.monotonic()))
    return os.read(descriptor, size) if is_ready else None


class ChildLostError(Exception):
    """The process hung or ended. ``exit_code`` is None if it was killed because it took too long."""

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        super().__init__(message, exit_code)
        self.message, self.exit_code = message, exit_code

    def __str__(self) -> str:
        return self.message


class Child:
    """A process that handles one request at a time. Not thread-safe."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, stderr: int | None = None
    ) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=None if env is None else dict(env),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._replies = self._process.stdin, self._process.stdout
        os.set_blocking(self._requests.fileno(), False)

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    def ask(self, request: Any, *, timeout_s: float) -> dict[str, Any]:
        """Send one line and return the reply.

        Raises:
            ChildLostError: the process took too long, or ended; in either case it no longer runs.
        """
        deadline = time.monotonic() + timeout_s
        try:
            is_sent = written(self._requests.fileno(), json.dumps(request).encode() + b"\n", deadline)
        except (OSError, ValueError) as error:  # the pipe is broken, or was closed by kill()
            exit_code = self.kill()
            raise ChildLostError(f"is not reachable: {error}", exit_code) from error
        if not is_sent:
            raise self._late(timeout_s)
        return self._reply(deadline, timeout_s)

    def receive(self, *, timeout_s: float) -> dict[str, Any]:
        """Wait for one line. Raises the errors of ``ask``."""
        return self._reply(time.monotonic() + timeout_s, timeout_s)

    def _late(self, timeout_s: float) -> ChildLostError:
        self.kill()
        return ChildLostError(f"took longer than {timeout_s:g} s and was stopped")

    def _reply(self, deadline: float, timeout_s: float) -> dict[str, Any]:
        content = b""
        while not content.endswith(b"\n"):
            part = arrived(self._replies.fileno(), 1 << 16, deadline)
            if part is None:
                raise self._late(timeout_s)
            if not part:
                exit_code = self.kill(grace_s=5.0)
                raise ChildLostError(f"ended with exit code {exit_code}", exit_code)
            content += part
        reply: dict[str, Any] = json.loads(content)
        return reply

    def kill(self, *, grace_s: float = 0.0) -> int:
        """Kill the process unless it ends within the grace period. Returns its exit code. May be called twice."""
        for stream in (self._requests, self._replies):
            with contextlib.suppress(OSError):  # closing flushes, and the reader may be gone
                stream.close()
        try:
            return self._process.wait(timeout=grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


class LastingChild:
    """Helper process, started by the first request and again after it was lost. Not thread-safe."""

    def __init__(self, start: Callable[[], Child]) -> None:
        """Args:
        start: function that starts a child and waits until it is ready; may raise ``ChildLostError``.
        """
        self._start = start
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the child; None if it does not run."""
        return None if self._child is None else self._child.pid

    def start(self) -> None:
        """Start the child unless it runs. Raises ChildLostError."""
        if self._child is None:
            self._child = self._start()

    def ask(self, request: Any, *, timeout_s: float) -> dict[str, Any]:
        """Send one line and return the reply. ``timeout_s`` does not include the start of the child.

        Raises:
            ChildLostError: see ``Child.ask``; the next call starts another child.
        """
        try:
            self.start()
            assert self._child is not None
            return self._child.ask(request, timeout_s=timeout_s)
        except ChildLostError:
            self._child = None
            raise

    def close(self) -> None:
        """Kill the child if it runs."""
        if self._child is not None:
            self._child.kill()
            self._child = None


@contextlib.contextmanager
def ending_itself(deadline_s: float) -> Iterator[None]:
    """Let the kernel kill the process ``OWN_END_S`` after the deadline, unless the block ends first.

    Normally the parent enforces the deadline. If the parent was killed, a hung helper would never end. The signal's
    default action does not need Python. Only for the main thread.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, deadline_s + OWN_END_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def module_child(module: str, first: Any = None) -> Child:
    """Start ``python -m <module>``, which must call ``serve``, and wait until it is ready. Raises ChildLostError.

    Args:
        first: input of ``prepare``, sent before all requests.
    """
    child = Child([sys.executable, "-m", module])
    child.ask(first, timeout_s=START_S)
    return child


def serve(prepare: Callable[[Any], Callable[[dict[str, Any]], dict[str, Any]]]) -> None:
    """Main loop of a helper module: prepare, announce readiness, then reply to each line until the input ends.

    Args:
        prepare: function that gets the first line and returns a function from requests to replies. Each request
            contains its time limit in seconds, ``deadline_s``.
    """
    # Replies have their own descriptor; anything that a plug-in prints goes to stderr.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with ending_itself(START_S):
        answer = prepare(json.loads(sys.stdin.readline()))
    print("{}", file=replies, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        with ending_itself(request["deadline_s"]):
            reply = answer(request)
        print(json.dumps(reply), file=replies, flush=True)
