"""Runs a command, and ends it when the process that started this program is gone. A program, not a module.

    python supervisor.py GRACE_S COMMAND ...

In:   a pipe as standard input, whose other end the starter holds.
Out:  the command's exit status; 128 + n where signal n ended it.

The command has a session of its own. When this program gets SIGTERM, or its pipe closes, which a killed starter cannot
prevent, all processes of the command get SIGTERM, and after ``GRACE_S`` seconds SIGKILL. Those that the command leaves
behind when it ends by itself get SIGKILL too. This program ends after them.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

_PR_SET_CHILD_SUBREAPER = 36
"""Linux's number for "orphans of mine become my children": this program waits for them."""
_GONE_S = 10.0
"""Killed processes may take so long to be gone: a GPU's memory is given back before."""


def main() -> int:
    """The exit status."""
    grace_s, command = float(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: wake.set())
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    threading.Thread(target=_wake_at_end_of_input, args=(wake,), daemon=True).start()
    threading.Thread(target=_wake_at_end_of, args=(child, wake), daemon=True).start()
    wake.wait()
    if child.poll() is None:
        _signal_all(child, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace_s)
    _signal_all(child, signal.SIGKILL)
    status = child.wait()
    deadline = time.monotonic() + _GONE_S
    while _signal_all(child, 0) and time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
        time.sleep(0.01)
    return status if status >= 0 else 128 - status


def _wake_at_end_of_input(wake: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    wake.set()


def _wake_at_end_of(child: "subprocess.Popen[bytes]", wake: threading.Event) -> None:
    child.wait()
    wake.set()


def _signal_all(child: "subprocess.Popen[bytes]", number: int) -> bool:
    """Whether there was a process of the command left."""
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
