"""Two integers per id, in an index on this machine's disk, for more ids than fit in memory."""

import sqlite3

_CACHE_KIB = 8192


class DiskIndex:
    """Two integers per id. Private to the process and removed with it. Not thread-safe."""

    def __init__(self) -> None:
        self._num_ids = 0
        # A temporary file that SQLite removes. Workers make it in one thread and use it in another.
        self._rows = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        for setting in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_CACHE_KIB}"):
            self._rows.execute(f"PRAGMA {setting}")
        self._rows.execute("CREATE TABLE places (id TEXT PRIMARY KEY, first INTEGER, second INTEGER) WITHOUT ROWID")

    def __len__(self) -> int:
        return self._num_ids

    def add(self, name: str, first: int = 0, second: int = 0) -> bool:
        """Add an id; returns whether it is new. A known id keeps its integers."""
        added = self._rows.execute("INSERT OR IGNORE INTO places VALUES (?, ?, ?)", (name, first, second)).rowcount == 1
        self._num_ids += added
        return added

    def find(self, name: str) -> tuple[int, int] | None:
        """The two integers of an id; None if it is unknown."""
        place: tuple[int, int] | None = self._rows.execute(
            "SELECT first, second FROM places WHERE id = ?", (name,)
        ).fetchone()
        return place

    def close(self) -> None:
        """Remove the file."""
        self._rows.close()
