"""What a disk refuses while adapters are trained, as an error that names the folder, the reason and the remedy.

Does not know: what is written.
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
"""By the system's number of what a new worker would meet again. Anything else may be over with the next attempt."""
_NUMBER = re.compile(r"\[Errno (\d+)\]")


def is_refused(error: OSError) -> bool:
    """Whether the disk refuses for good, until someone acts."""
    return error.errno in REMEDIES


@contextmanager
def writing_to(folder: str, *, part: str, finished: tuple[str, ...] = ()) -> Iterator[None]:
    """Write something to a folder.

    Args:
        folder: for the message.
        part: name of the adapter, or of what else is written.
        finished: names of adapters that are complete.

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
    """The message of an error, with the remedy where it has the number of a refusal, ``[Errno 28]``. Of an error in
    another process only its message may arrive."""
    number = _NUMBER.search(message)
    remedy = REMEDIES.get(int(number[1])) if number else None
    return message if remedy is None else f"{message}; {remedy}; finished epochs are kept"
