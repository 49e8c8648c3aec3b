"""Zygote side: wait for a child within its limits."""

import os
import select
import time
from typing import Any

STDERR_TAIL = 4096
"""Number of bytes from the end of a child's stderr that a reply contains."""


class Clock:
    """Time left until a child reaches its wall or CPU limit. Both count from construction."""

    def __init__(self, pid: int, limits: dict[str, Any]) -> None:
        # Clock of another process's CPU time; the standard library only has time.pthread_getcpuclockid, for threads.
        self._clock_id: int = (~pid << 3) | 2
        self._wall_end: float = time.monotonic() + limits["wall_s"]
        self._cpu_end: float = self._cpu_s() + limits["cpu_s"]

    def _cpu_s(self) -> float:
        try:
            return float(time.clock_gettime(self._clock_id))
        except OSError:  # it has ended
            return 0.0

    def left_s(self) -> float:
        """Most seconds until the next limit, which several threads may reach sooner; 0 or less once it is reached."""
        cpu_left_s = self._cpu_end - self._cpu_s()
        return min(self._wall_end - time.monotonic(), cpu_left_s + 0.001 if cpu_left_s > 0 else 0)


class ProgramWatch:
    """Read a child's output and wait until it ends or reaches a limit."""

    def __init__(self, pid: int, descriptors: list[int], limits: dict[str, Any]) -> None:
        self._limits = limits
        self._clock = Clock(pid, limits)
        self._pidfd = os.pidfd_open(pid)
        self.contents = [bytearray() for _ in descriptors]
        self._content_of = dict(zip(descriptors, self.contents, strict=True))
        self._open = set(descriptors)
        for descriptor in descriptors:
            os.set_blocking(descriptor, False)

    def wait(self) -> str:
        """Wait for the end of the program (``"exited"``) or a limit (``"timeout"``, ``"output_limit"``)."""
        poll = select.poll()
        for descriptor in [self._pidfd, *self._open]:
            poll.register(descriptor, select.POLLIN)
        try:
            while True:
                left_s = self._clock.left_s()
                if left_s <= 0:
                    return "timeout"
                ready = [descriptor for descriptor, _ in poll.poll(left_s * 1000)]
                for descriptor in ready:
                    if descriptor != self._pidfd and not self._read(descriptor):
                        poll.unregister(descriptor)
                if len(self.contents[0]) > self._limits["output_bytes"]:
                    return "output_limit"
                if self._pidfd in ready:
                    return "exited"
        finally:
            os.close(self._pidfd)

    def drain(self) -> None:
        """Read the rest of the output without waiting, up to its limit."""
        for descriptor in list(self._open):
            while self._read(descriptor) and len(self._content_of[descriptor]) <= self._limits["output_bytes"]:
                pass

    def _read(self, descriptor: int) -> bool:
        """Read once. False at the end, or if no data is available now."""
        try:
            part = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return False
        if not part:
            self._open.discard(descriptor)
            return False
        content = self._content_of[descriptor]
        content += part
        if content is not self.contents[0] and len(content) > 4 * STDERR_TAIL:
            del content[:-STDERR_TAIL]
        return True


def await_line(descriptor: int, clock: Clock, output_bytes: int, reply: bytearray) -> str:
    """Read a line into ``reply`` (``"line"``), up to a limit (``"timeout"``, ``"output_limit"``) or the child's end
    (``"gone"``)."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while not reply.endswith(b"\n"):
        left_s = clock.left_s()
        if left_s <= 0:
            return "timeout"
        if not poll.poll(left_s * 1000):
            continue
        part = os.read(descriptor, 1 << 16)
        if not part:
            return "gone"
        reply += part
        if len(reply) > output_bytes:
            return "output_limit"
    return "line"
