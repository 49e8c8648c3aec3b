"""Journal of requests: every answer is stored on arrival, so that no completion is paid for twice.

A file ``<folder>/<time_ns>-<pid>-<n>.jsonl`` has one writer and one unbuffered line per answer. All files are read at
the start. Answers stay on disk and are found by an index. An incomplete line (the writer was killed, or the disk was
full) is dropped, and the next line begins after a line break. Only answers with text are stored: a failed request is
sent again. Costs of failed requests have their own lines, so that a rerun's budget includes them.

Independent of: endpoints, Ray. The folder must be on a file system that can append. On a cluster, all generating
processes must share the folder.
"""

import itertools
import json
import logging
import os
import re
import sqlite3
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from raydebm.errors import ConfigError
from raydebm.generators.requests import Generator
from raydebm.identity import canonical_json
from raydebm.records import Candidate, GenerationRequest, well_formed
from raydebm.run.addresses import is_url
from raydebm.run.tables import CANDIDATES

_LOG = logging.getLogger(__name__)
_FILE_NUMBERS = itertools.count()
_LOST = "lost_usd"
"""The only field of a line for a failed request."""
_CACHE_KIB = 8192
_SPENT = re.compile(rb'"(?:cost|lost)_usd":([0-9.eE+-]+)[,}]')
"""Cost in a line. Never matches within a text, where quotation marks are escaped."""


class Journal:
    """Answers by candidate id. ``catch_up`` reads what other processes wrote into the same folder."""

    def __init__(self, folder: str | Path) -> None:
        """Open or create a journal. Raises ConfigError if the folder cannot be created or cannot append."""
        self._folder = local_folder(folder)
        # Places of the lines by candidate id, in a temporary file that SQLite removes: the ids may not fit in memory.
        # Workers create the connection in one thread and use it in another.
        self._index = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        for setting in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_CACHE_KIB}"):
            self._index.execute(f"PRAGMA {setting}")
        self._index.execute("CREATE TABLE places (id TEXT PRIMARY KEY, file INTEGER, start INTEGER) WITHOUT ROWID")
        self._own_name = f"{time.time_ns()}-{os.getpid()}-{next(_FILE_NUMBERS)}.jsonl"
        self._names = [self._own_name]
        self._offsets = {self._own_name: 0}
        self.read_usd = 0.0
        """Spending of earlier runs and other processes: known costs of answers and failed requests."""
        self._file: int | None = None
        self._ends_incomplete = False
        """Whether this journal's own file ends with an incomplete line."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"journal folder {str(folder)!r} cannot be created: {error}; choose another run_dir"
            raise ConfigError(message) from error
        self.catch_up()

    def __len__(self) -> int:
        return int(self._index.execute("SELECT COUNT(*) FROM places").fetchone()[0])

    def __contains__(self, candidate_id: str) -> bool:
        return self._place(candidate_id) is not None

    def get(self, candidate_id: str) -> Candidate | None:
        """The recorded candidate. None if its request was not answered yet."""
        place = self._place(candidate_id)
        if place is None:
            return None
        number, start = place
        with (self._folder / self._names[number]).open("rb") as lines:
            lines.seek(start)
            return CANDIDATES.record(_row(lines.readline()))

    def put(self, candidate: Candidate) -> None:
        """Store an answer. Candidates without text are skipped; if another process stored the same answer, only the
        cost is stored. Raises OSError if the disk is full or gone."""
        if candidate.text is None:
            return
        if candidate.candidate_id in self:
            if candidate.cost_usd:
                self.put_lost(candidate.cost_usd)
            return
        start = self._write(CANDIDATES.row(candidate))
        self._add(candidate.candidate_id, 0, start)

    def put_lost(self, usd: float) -> None:
        """Store the cost of a request without an answer. Raises OSError if the disk is full or gone."""
        self._write({_LOST: usd})

    def _place(self, candidate_id: str) -> tuple[int, int] | None:
        """File number and start of the line."""
        place: tuple[int, int] | None = self._index.execute(
            "SELECT file, start FROM places WHERE id = ?", (candidate_id,)
        ).fetchone()
        return place

    def _add(self, candidate_id: str, number: int, start: int) -> None:
        self._index.execute("INSERT OR IGNORE INTO places VALUES (?, ?, ?)", (candidate_id, number, start))

    def _write(self, row: Mapping[str, Any]) -> int:
        """Append a line and return its start. Never truncates, because other processes may be reading."""
        line = canonical_json(row).encode("utf-8", errors="surrogatepass") + b"\n"
        break_before = b"\n" if self._ends_incomplete else b""
        if self._file is None:
            path = self._folder / self._own_name
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        start = self._offsets[self._own_name] + len(break_before)
        written = os.write(self._file, break_before + line)
        self._offsets[self._own_name] += written
        if written != len(break_before) + len(line):  # a full disk takes part of a line, which readers drop
            self._ends_incomplete = written > len(break_before) or (self._ends_incomplete and not written)
            raise OSError(f"journal {self._folder}: wrote {written} of {len(line)} bytes; is the disk full?")
        self._ends_incomplete = False
        return start

    def catch_up(self) -> None:
        """Read the lines that other writers have added."""
        for entry in sorted(os.scandir(self._folder), key=lambda file: file.name):
            if not entry.name.endswith(".jsonl") or entry.name == self._own_name:
                continue
            if entry.stat().st_size > self._offsets.get(entry.name, 0):
                self._read(entry.name)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read(self, name: str) -> None:
        if name not in self._offsets:
            self._offsets[name] = 0
            self._names.append(name)
        number = self._names.index(name)
        with (self._folder / name).open("rb") as lines:
            lines.seek(self._offsets[name])
            for line in lines:
                if not line.endswith(b"\n"):  # incomplete, or still being written
                    break
                self._take(line, number)
                self._offsets[name] += len(line)

    def _take(self, line: bytes, number: int) -> None:
        """Index the answer in a line, and add its cost."""
        name = self._names[number]
        try:
            row = _row(line)
            if _LOST in row:
                self.read_usd += float(row[_LOST])
                return
            candidate = CANDIDATES.record(row)
        except (ValueError, KeyError, TypeError) as error:
            _LOG.warning("journal %s/%s: line ignored, its request will be repeated: %s", self._folder, name, error)
            return
        self._add(candidate.candidate_id, number, self._offsets[name])
        self.read_usd += candidate.cost_usd or 0.0  # even for a known answer, which was paid for twice


def _row(line: bytes) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(well_formed(line.decode("utf-8", errors="surrogatepass")))
    return row


def spent_usd(folders: Iterable[str | Path]) -> float:
    """Known spending in these journals in US dollars. Reads only the costs, which is fast.

    Raises:
        ConfigError: a folder is on a file system that cannot append.
    """
    total = 0.0
    for folder in folders:
        for file in sorted(local_folder(folder).glob("*.jsonl")):
            with file.open("rb") as lines:
                total += sum(float(match[1]) for match in map(_SPENT.search, lines) if match is not None)
    return total


def local_folder(folder: str | Path) -> Path:
    """Path of a journal's folder.

    Raises:
        ConfigError: the folder is on a file system that cannot append.
    """
    text = str(folder)
    if text.startswith("file://"):
        return Path(text.removeprefix("file://"))
    if is_url(text):
        raise ConfigError(
            f"journal folder {text!r}: this file system cannot append; use a run_dir on a disk that all nodes share"
        )
    return Path(text)


class JournaledGenerator:
    """Generator that answers from the journal if possible, and records the inner generator's answers."""

    def __init__(self, inner: Generator, journal: Journal) -> None:
        self.name = inner.name
        self._inner = inner
        self._journal = journal

    async def stream(self, requests: Sequence[GenerationRequest]) -> AsyncIterator[Candidate]:
        """Answer from the journal, and ask the inner generator for the rest."""
        self._journal.catch_up()
        missing = []
        for request in requests:
            recorded = self._journal.get(request.candidate_id)
            if recorded is None:
                missing.append(request)
            else:
                yield recorded
        async for candidate in self._inner.stream(missing):
            self._journal.put(candidate)
            yield candidate

    async def aclose(self) -> None:
        """Close the inner generator. The journal stays open."""
        await self._inner.aclose()
