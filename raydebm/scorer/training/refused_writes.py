"""Errors of full or read-only disks during training, with folder, reason and remedy.

Independent of: the content of the files.
"""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from raydebm.errors import StorageError, in_one_line

_NOT_OURS = "make it writable for the user that trains"
REMEDIES = {
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "free space there, or have the quota raised",
    errno.EROFS: "make it writable",
    errno.EACCES: _NOT_OURS,
    errno.EPERM: _NOT_OURS,
}
"""Remedies by error number, for errors that recur in every new worker. Others may be gone at the next attempt."""
_NUMBER = re.compile(r"\[Errno (\d+)\]")


def is_refused(error: OSError) -> bool:
    """Whether the error will recur until someone intervenes, such as when the disk is full."""
    return error.errno in REMEDIES


@contextmanager
def writing_to(folder: str, *, part: str, finished: tuple[str, ...] = ()) -> Iterator[None]:
    """Context manager for writing to a folder.

    Args:
        folder: folder that is written to, for the message.
        part: adapter or other part that is written, for the message.
        finished: adapters that are already complete, for the message.

    Raises:
        StorageError: the disk is full or read-only, a quota is used up, or the folder is another user's.
    """
    try:
        yield
    except OSError as error:
        if not is_refused(error):
            raise
        reason = with_remedy(f"cannot write to {folder}: {in_one_line(str(error))}")
        raise StorageError({part: reason}, finished) from error


def with_remedy(message: str) -> str:
    """The message, with the remedy if it contains the error number of a refusal, such as ``[Errno 28]``. An error from
    another process may arrive as a message only."""
    number = _NUMBER.search(message)
    remedy = REMEDIES.get(int(number[1])) if number else None
    return message if remedy is None else f"{message}; {remedy}; finished epochs are kept"
