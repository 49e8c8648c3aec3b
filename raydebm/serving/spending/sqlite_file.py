"""A SQLite file that all ingress replicas share."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raydebm.errors import ResourceError

BUSY_S = 30.0
"""How long a process waits for another one's transaction, which takes milliseconds."""


class SqliteFile:
    """Transactions on one file, from any thread and any process."""

    def __init__(self, path: str, *, tables: str, name: str, across_nodes: bool = False) -> None:
        """
        Args:
            path: of the file, made when it is first needed; on a disk with working file locks.
            tables: SQL that creates what is missing.
            name: what the file is, for error messages.
            across_nodes: whether processes of several nodes use the file. SQLite's fast journal (WAL) works within one
                node only; the other one costs two writes to the disk per transaction.
        """
        self._path, self._tables, self._name, self._across_nodes = path, tables, name, across_nodes
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection that no one else writes through until the end, where all is written, or nothing if it raises.

        Raises:
            ResourceError: the file cannot be used.
        """
        with self._lock:
            try:
                db = self._connection = self._connection or self._open()
                db.execute("BEGIN IMMEDIATE")
                try:
                    yield db
                    db.execute("COMMIT")  # may find the file busy too: another process reads it
                except BaseException:
                    self._take_back(db)
                    raise
            except (sqlite3.Error, OSError) as error:
                raise ResourceError(f"the {self._name} {self._path!r} cannot be used: {error}") from error

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _take_back(self, db: sqlite3.Connection) -> None:
        """Leave no transaction open, which the next one could not begin in."""
        try:
            if db.in_transaction:
                db.execute("ROLLBACK")
        except sqlite3.Error:
            self._connection = None
            db.close()

    def _open(self) -> sqlite3.Connection:
        Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        # Neither loses anything when a process dies; after a power cut WAL may lack the last moments.
        db.execute(f"PRAGMA journal_mode={'DELETE' if self._across_nodes else 'WAL'}")
        db.execute(f"PRAGMA synchronous={'FULL' if self._across_nodes else 'NORMAL'}")
        db.executescript(self._tables)
        return db
