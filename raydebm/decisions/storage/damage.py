"""Parquet files whose content is damaged: told apart from a disk or a network that does not answer.

Arrow raises the same types for both. A file is at fault when all of its bytes can be read and it cannot be decoded.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyarrow import fs

from raydebm.errors import ConfigError, PoolError

log = logging.getLogger(__name__)

UNREADABLE = (OSError, PoolError, pa.ArrowException)
"""What a folder raises that cannot be listed, read or written, also where a file stands in its place."""
DECODING_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError, TypeError)
"""What reading damaged content raises; ``OSError`` also stands for a disk that fails."""
NO_DECISION = (ConfigError, ValueError, KeyError, TypeError, RecursionError)
"""What a row of a damaged file raises that was decoded and is no decision: pages have no checksums."""
_CHUNK = 2**20


class DamagedFileError(Exception):
    """A file that can be read and not decoded. Never leaves the readers."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason


@contextmanager
def decoding(path: str, filesystem: fs.FileSystem) -> Iterator[None]:
    """Raises DamagedFileError in place of what a damaged file makes Arrow raise; other errors stay as they are."""
    try:
        yield
    except FileNotFoundError:
        raise
    except DECODING_ERRORS as error:
        if not _is_readable(path, filesystem):
            raise
        raise DamagedFileError(path, str(error).strip().partition("\n")[0]) from error


def note_left_out(error: Exception) -> None:
    """Say that a row is no decision and is left out."""
    log.warning("a stored decision is left out: it cannot be read: %s", error)


def _is_readable(path: str, filesystem: fs.FileSystem) -> bool:
    try:
        with filesystem.open_input_stream(path) as stream:
            while stream.read(_CHUNK):
                pass
    except OSError:
        return False
    return True
