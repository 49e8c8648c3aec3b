"""Candidates that were paid for a short while ago, so that an equal request of the same caller need not pay again.

A SQLite file that all ingress replicas share, next to the ledger. An entry belongs to one caller and one candidate id,
which names task, problem, messages, generator, sampling, seed, pass and sample: nothing else finds it.
Does not know: decisions, Ray, HTTP.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from raydebm.identity import canonical_json
from raydebm.records import Candidate
from raydebm.run.tables import CANDIDATES
from raydebm.serving.spending.sqlite_file import SqliteFile

_TABLES = """
CREATE TABLE IF NOT EXISTS candidates (
  owner TEXT, key TEXT, arrived REAL, size INTEGER, content BLOB, PRIMARY KEY (owner, key));
CREATE INDEX IF NOT EXISTS candidates_by_age ON candidates (arrived);
CREATE TABLE IF NOT EXISTS total (id INTEGER PRIMARY KEY CHECK (id = 1), size INTEGER);
INSERT OR IGNORE INTO total SELECT 1, COALESCE(SUM(size), 0) FROM candidates;
CREATE TRIGGER IF NOT EXISTS candidate_added AFTER INSERT ON candidates
  BEGIN UPDATE total SET size = size + NEW.size; END;
CREATE TRIGGER IF NOT EXISTS candidate_removed AFTER DELETE ON candidates
  BEGIN UPDATE total SET size = size - OLD.size; END;
"""
"""The total is kept, not summed: each request that samples writes here, and summing 150,000 candidates takes 0.2 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseLimits:
    """How long candidates are reused, and how much of them is kept."""

    max_age_s: float
    """Seconds from its arrival; an older candidate is sampled again."""
    max_bytes: int
    """Total over all callers; the oldest candidates go first."""


@dataclass(frozen=True, slots=True)
class ReusedCandidate:
    """A candidate that an earlier request of the same caller paid for, as that request got it."""

    candidate: Candidate
    age_s: float
    """Seconds since it arrived."""

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens that are not paid for again; 0 where the generator reports none."""
        return (self.candidate.prompt_tokens or 0) + (self.candidate.completion_tokens or 0)


class CandidateStore:
    """Candidates by caller and key. Calls may come from any thread and any process."""

    def __init__(self, path: str, *, across_nodes: bool = False, clock: Callable[[], float] = time.time) -> None:
        """
        Args:
            path: of the file; ``":memory:"``: this process alone knows the candidates.
            across_nodes: see ``SqliteFile``.
            clock: seconds since 1970, for ages across processes.
        """
        self._file = SqliteFile(path, tables=_TABLES, name="file of reusable candidates", across_nodes=across_nodes)
        self._clock = clock

    def find(self, owner: str, keys: Sequence[str], *, max_age_s: float) -> dict[str, ReusedCandidate]:
        """Those of the owner's candidates that are young enough, by key.

        Raises:
            ResourceError: the file cannot be used.
        """
        now, places = self._clock(), ", ".join("?" * len(keys))
        query = f"SELECT key, arrived, content FROM candidates WHERE owner = ? AND arrived > ? AND key IN ({places})"
        with self._file.transaction() as db:
            rows = db.execute(query, (owner, now - max_age_s, *keys)).fetchall()
        return {key: ReusedCandidate(_candidate(content), max(0.0, now - arrived)) for key, arrived, content in rows}

    def keep(self, owner: str, candidates: Mapping[str, Candidate], *, limits: ReuseLimits) -> None:
        """Keep new candidates in the place of the owner's earlier ones, and evict what is too old or too much.

        Raises:
            ResourceError: the file cannot be used.
        """
        now = self._clock()
        contents = {key: _content(candidate) for key, candidate in candidates.items()}
        rows = [(owner, key, now, len(content), content) for key, content in contents.items()]
        with self._file.transaction() as db:
            db.execute("DELETE FROM candidates WHERE arrived <= ?", (now - limits.max_age_s,))
            # Not INSERT OR REPLACE, which removes rows without telling triggers.
            db.executemany("DELETE FROM candidates WHERE owner = ? AND key = ?", [row[:2] for row in rows])
            db.executemany("INSERT INTO candidates VALUES (?, ?, ?, ?, ?)", rows)
            db.executemany("DELETE FROM candidates WHERE rowid = ?", _oldest(db, beyond=limits.max_bytes))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _oldest(db: sqlite3.Connection, *, beyond: int) -> list[tuple[int]]:
    """Row ids of the oldest candidates, as many as there are bytes beyond the bound."""
    ((total,),) = db.execute("SELECT size FROM total").fetchall()
    rowids: list[tuple[int]] = []
    if total > beyond:
        for rowid, size in db.execute("SELECT rowid, size FROM candidates ORDER BY arrived, rowid"):
            rowids.append((rowid,))
            total -= size
            if total <= beyond:
                break
    return rowids


def _content(candidate: Candidate) -> bytes:
    return canonical_json(CANDIDATES.row(candidate)).encode("utf-8", "surrogatepass")


def _candidate(content: bytes) -> Candidate:
    return CANDIDATES.record(json.loads(content.decode("utf-8", "surrogatepass")))
