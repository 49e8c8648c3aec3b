"""One process at a time makes something in a run directory.

The lock is advisory, on ``<run>/.lock``, and the kernel's (``flock``): a process that is killed holds it no longer. It
is for the process that decides what is made; its Ray workers write into the run without it, and readers need none. A
run directory behind a URL, and one on a file system without locks, has none.
"""

import fcntl
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raydebm.errors import ConfigError
from raydebm.run.folder import Folder
from raydebm.user_files.writing import writing

LOCK_FILE = ".lock"

_guard = threading.Lock()
_held: dict[str, tuple[int, int]] = {}
"""By path: descriptor, and how many blocks of this process are inside."""


@contextmanager
def write_lock(run: Folder) -> Iterator[None]:
    """No other process makes anything in the run directory while the block runs; blocks of one process may nest.

    Raises:
        ConfigError: another process does, which the message names; or the run directory cannot be made.
    """
    if not run.is_local:
        yield
        return
    path = Path(run.root).resolve() / LOCK_FILE
    _enter(path)
    try:
        yield
    finally:
        _leave(path)


def _enter(path: Path) -> None:
    with _guard:
        descriptor, depth = _held.get(str(path), (-1, 0))
        if depth == 0:
            descriptor = _locked(path)
        _held[str(path)] = (descriptor, depth + 1)


def _leave(path: Path) -> None:
    with _guard:
        descriptor, depth = _held.pop(str(path))
        if depth > 1:
            _held[str(path)] = (descriptor, depth - 1)
        elif descriptor >= 0:
            os.close(descriptor)


def _locked(path: Path) -> int:
    """A descriptor that holds the lock; -1 where the file system has none, or takes no file: a finished run may lie
    where nothing can be written."""
    with writing(path.parent, option="run_dir"):
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:
        return -1
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise ConfigError(
            f"{path.parent} is being written by {_holder(path)}; wait until it has ended or end it, or give another "
            "run_dir"
        ) from error
    except OSError:
        os.close(descriptor)
        return -1
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "command": " ".join(sys.argv)[:200]}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(holder).encode(), 0)
    return descriptor


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_bytes())
        return f"process {holder['pid']} on {holder['host']} ({holder['command']})"
    except (OSError, ValueError, KeyError, TypeError):  # it has the lock, and has not written yet who it is
        return "another process"
