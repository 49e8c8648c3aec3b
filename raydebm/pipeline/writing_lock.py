"""Lock of a run directory: one process at a time makes stages in it.

The lock is an advisory kernel lock on ``<run>/.lock``. The process that makes stages holds it; its Ray workers and all
readers do not need it. Run directories at URLs or on file systems without locks are not locked.
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
from raydebm.user_files import writing

LOCK_FILE = ".lock"

_guard = threading.Lock()
_held: dict[str, tuple[int | None, int]] = {}
"""Descriptor (None without a lock) and nesting depth in this process, by path."""


@contextmanager
def write_lock(run: Folder, *, option: str = "run_dir") -> Iterator[None]:
    """Context manager that keeps other processes from writing the run directory; may be nested within one process.

    Args:
        run: run directory to lock. One at a URL is not locked.
        option: option that names it, for messages.

    Raises:
        ConfigError: another process holds the lock (named in the message), or the run directory cannot be made.
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
    """A descriptor that holds the lock; None if the run directory is read-only or its file system has no locks."""
    with writing(path.parent, option=option):
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = locked(path, wait=False)
    except BlockingIOError as error:
        raise ConfigError(
            f"{path.parent} is being written by {_holder(path)}; wait for it, stop it, or give another {option}"
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
    except (OSError, ValueError, KeyError, TypeError):  # the holder has not written its details yet
        return "another process"


def locked(path: Path, *, wait: bool) -> int | None:
    """A descriptor that holds the lock until closed. Creates the file if missing.

    Args:
        path: the lock file, in an existing folder.
        wait: permission to wait for another holder.

    Returns:
        None if the file system has no locks or is not writable.

    Raises:
        BlockingIOError: another process holds the lock, and ``wait`` is false.
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
