"""A lock of the kernel on a file (``flock``): a process that is killed holds it no longer."""

import fcntl
import os
from pathlib import Path


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
