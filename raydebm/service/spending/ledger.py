"""Daily spending in a SQLite file that all ingress replicas of a node share.

Before candidates are requested, their worst cost is reserved from every ceiling at once; afterwards the difference to
the real cost is returned. So parallel requests together stay below a ceiling, and the holds of a killed process count
as spent.
Does not know: requests, Ray, HTTP.
"""

import math
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from raydebm.errors import ResourceError

NANO = 1_000_000_000
MAX_USD = 1e8
BUSY_S = 30.0
"""Longest wait for another process's transaction, which takes milliseconds."""
_TABLES = """
CREATE TABLE IF NOT EXISTS spent (
  day TEXT, account TEXT, nano_usd INTEGER, candidates INTEGER, PRIMARY KEY (day, account));
CREATE TABLE IF NOT EXISTS held (
  id TEXT, account TEXT, day TEXT, nano_usd INTEGER, candidates INTEGER, PRIMARY KEY (id, account));
"""


@dataclass(frozen=True, slots=True)
class Amount:
    """Money and candidates. Money is counted in whole billionths, so that sums are exact."""

    nano_usd: int = 0
    candidates: int = 0

    @classmethod
    def of(cls, usd: float, candidates: int = 1) -> "Amount":
        """An amount, rounded up; more than ``MAX_USD`` counts as infinite."""
        return cls(math.ceil(min(usd, MAX_USD) * NANO), candidates)

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.nano_usd + other.nano_usd, self.candidates + other.candidates)


class Ceilings(BaseModel):
    """Limits on the spending of one request or of one UTC day. Default: no limit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    usd: float | None = Field(None, ge=0, allow_inf_nan=False)
    candidates: int | None = Field(None, ge=0)

    @property
    def is_limit(self) -> bool:
        """True if anything is limited."""
        return self != Ceilings()

    def covers(self, amount: Amount) -> bool:
        """True if the amount is within the ceilings."""
        return (self.usd is None or amount.nano_usd <= round(self.usd * NANO)) and (
            self.candidates is None or amount.candidates <= self.candidates
        )


@dataclass(frozen=True, slots=True)
class Hold:
    """Amounts reserved for one pass."""

    hold_id: str
    granted: tuple[int, ...]
    """Indices of the granted amounts. Empty if nothing fits."""


class Ledger:
    """Accounts by name and UTC day. Every call is one transaction; calls may come from any thread."""

    def __init__(self, path: str, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Args:
        path: the SQLite file on a local disk, created on first use.
        clock: current time, which determines the day.
        """
        self._path, self._clock = path, clock
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def reserve(self, accounts: Mapping[str, Ceilings], wanted: Sequence[Amount]) -> Hold:
        """Reserve as many of the wanted amounts as fit below every ceiling, in order.

        One that does not fit is skipped; a later, smaller one may still fit.

        Raises:
            ResourceError: the file cannot be used.
        """
        hold_id, day = uuid.uuid4().hex, self._day()
        with self._transaction() as db:
            totals = {account: _total(db, day, account) for account in accounts}
            held, granted = Amount(), []
            for place, amount in enumerate(wanted):
                more = held + amount
                if all(ceilings.covers(totals[account] + more) for account, ceilings in accounts.items()):
                    held = more
                    granted.append(place)
            if granted:
                for account in accounts:
                    _add(db, day, account, held)
                    row = (hold_id, account, day, held.nano_usd, held.candidates)
                    db.execute("INSERT INTO held (id, account, day, nano_usd, candidates) VALUES (?, ?, ?, ?, ?)", row)
        return Hold(hold_id, tuple(granted))

    def settle(self, hold: Hold, actual: Amount) -> None:
        """Replace a hold by the actual amount.

        Raises:
            ResourceError: the file cannot be used; the hold then counts as spent.
        """
        with self._transaction() as db:
            rows = db.execute(
                "DELETE FROM held WHERE id = ? RETURNING account, day, nano_usd, candidates", (hold.hold_id,)
            ).fetchall()
            for account, day, nano_usd, candidates in rows:
                _add(db, day, account, Amount(actual.nano_usd - nano_usd, actual.candidates - candidates))

    def spent(self, account: str) -> Amount:
        """Today's spending including holds. Raises ResourceError."""
        with self._transaction() as db:
            return _total(db, self._day(), account)

    def resets_at(self) -> datetime:
        """Start of the next day."""
        return (self._clock() + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _day(self) -> str:
        return self._clock().date().isoformat()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection in an exclusive transaction, committed at the end and rolled back on an error."""
        with self._lock:
            try:
                db = self._connection = self._connection or self._open()
                db.execute("BEGIN IMMEDIATE")
                try:
                    yield db
                    db.execute("COMMIT")
                except BaseException:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                    raise
            except (sqlite3.Error, OSError) as error:
                raise ResourceError(f"the ledger {self._path!r} cannot be used: {error}") from error

    def _open(self) -> sqlite3.Connection:
        Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        # Safe against the death of a process; a power cut may lose the last moments.
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.executescript(_TABLES)
        return db


def _total(db: sqlite3.Connection, day: str, account: str) -> Amount:
    query = "SELECT nano_usd, candidates FROM spent WHERE day = ? AND account = ?"
    row = db.execute(query, (day, account)).fetchone()
    return Amount() if row is None else Amount(*row)


def _add(db: sqlite3.Connection, day: str, account: str, amount: Amount) -> None:
    db.execute(
        "INSERT INTO spent (day, account, nano_usd, candidates) VALUES (?, ?, ?, ?) ON CONFLICT (day, account) "
        "DO UPDATE SET nano_usd = nano_usd + excluded.nano_usd, candidates = candidates + excluded.candidates",
        (day, account, amount.nano_usd, amount.candidates),
    )
