"""One process at a time makes something in a run directory.

The lock is advisory, on ``<run>/.lock``, and the kernel's (``run.file_lock``). It is for the process that decides what
is made; its Ray workers write into the run without it, and readers need none. A run directory behind a URL, and one on
a file system without locks, has none.
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
_held: dict[str, tuple[int | None, int]] = {}
"""By path: descriptor (None: there is no lock), and how many blocks of this process are inside."""


@contextmanager
def write_lock(run: Folder, *, option: str = "run_dir") -> Iterator[None]:
    """No other process makes anything in the run directory while the block runs; blocks of one process may nest.

    Args:
        run: the run directory.
        option: what names it, in the words of a message.

    Raises:
        ConfigError: another process does, which the message names; or the run directory cannot be made.
    """
    if not run.is_local:
        yield
        return
    path = Path(run.root).resolve() / LOCK_FILE
    _enter(path, option)
    try:
        yield
    finally:
        _leave(path)


def _enter(path: Path, option: str) -> None:
    with _guard:
        descriptor, depth = _held.get(str(path), (None, 0))
        if depth == 0:
            descriptor = _locked(path, option)
        _held[str(path)] = (descriptor, depth + 1)


def _leave(path: Path) -> None:
    with _guard:
        descriptor, depth = _held.pop(str(path))
        if depth > 1:
            _held[str(path)] = (descriptor, depth - 1)
        elif descriptor is not None:
            os.close(descriptor)


def _locked(path: Path, option: str) -> int | None:
    """A descriptor that holds the lock; None where ``locked`` gives none. A finished run may lie where nothing can be
    written."""
    with writing(path.parent, option=option):
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = locked(path, wait=False)
    except BlockingIOError as error:
        raise ConfigError(
            f"{path.parent} is being written by {_holder(path)}; wait until it has ended or end it, or give another "
            f"{option}"
        ) from error
    if descriptor is None:
        return None
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


def locked(path: Path, *, wait: bool) -> int | None:
    """A descriptor that holds the lock until it is closed; the file is made where it is missing.

    Args:
        path: the file, in a folder that is there.
        wait: for the process that has the lock.

    Returns:
        None where the file system has no locks, or takes no file.

    Raises:
        BlockingIOError: another process has the lock, and ``wait`` is false.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
