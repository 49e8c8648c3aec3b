"""Runs a command, and ends it with whoever started this program, however that one ends. A program, not a module.

    python supervisor.py GRACE_S COMMAND ...

In:   a pipe as standard input, whose other end the starter holds.
Out:  the command's exit status; 128 + n where signal n ended it.

When the pipe closes, which a killed starter cannot prevent, this process group gets SIGTERM, and after ``GRACE_S``
seconds SIGKILL. SIGTERM itself is left to the command, so that this program ends after it.
"""

import os
import select
import signal
import subprocess
import sys
import time

_POLL_S = 0.2


def main() -> int:
    """The exit status."""
    grace_s, command = float(sys.argv[1]), sys.argv[2:]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, lambda number, frame: None)  # not SIG_IGN, which the command's children would inherit
    while child.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], _POLL_S)
        if readable and not os.read(sys.stdin.fileno(), 1):
            _end(child, grace_s)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _end(child: "subprocess.Popen[bytes]", grace_s: float) -> None:
    os.killpg(0, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while child.poll() is None and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    os.killpg(0, signal.SIGKILL)  # what the command started and left, and this process


if __name__ == "__main__":
    sys.exit(main())
