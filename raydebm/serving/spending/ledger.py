"""Daily spending in a SQLite file that all ingress replicas of a node share.

Before candidates are asked for, the most that they may cost is taken out of every ceiling at once; afterwards the
difference to what they did cost is put back. So parallel requests together stay below a ceiling, and when a process is
killed in between, what it held counts as spent.
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
"""How long a process waits for another one's transaction, which takes milliseconds."""
_TABLES = """
CREATE TABLE IF NOT EXISTS spent (
  day TEXT, account TEXT, nano_usd INTEGER, candidates INTEGER, tokens INTEGER, PRIMARY KEY (day, account));
CREATE TABLE IF NOT EXISTS held (
  id TEXT, account TEXT, day TEXT, nano_usd INTEGER, candidates INTEGER, tokens INTEGER, PRIMARY KEY (id, account));
"""


@dataclass(frozen=True, slots=True)
class Amount:
    """Money, candidates and tokens. Money is counted in whole billionths, so that sums are exact."""

    nano_usd: int = 0
    candidates: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, usd: float, candidates: int, tokens: int) -> "Amount":
        """Rounds up; more than ``MAX_USD`` is as good as infinite."""
        return cls(math.ceil(min(usd, MAX_USD) * NANO), candidates, tokens)

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.nano_usd + other.nano_usd, self.candidates + other.candidates, self.tokens + other.tokens)


class DayCeilings(BaseModel):
    """The most that may be spent on one UTC day. Default: no limit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    usd: float | None = Field(None, ge=0, allow_inf_nan=False)
    candidates: int | None = Field(None, ge=0)
    tokens: int | None = Field(None, ge=0)
    """Prompt and completion tokens of all candidates."""

    @property
    def is_limit(self) -> bool:
        """Whether anything is limited."""
        return (self.usd, self.candidates, self.tokens) != (None, None, None)

    def covers(self, amount: Amount) -> bool:
        """Whether an amount stays within it."""
        nano_usd = None if self.usd is None else round(self.usd * NANO)
        pairs = ((amount.nano_usd, nano_usd), (amount.candidates, self.candidates), (amount.tokens, self.tokens))
        return all(most is None or value <= most for value, most in pairs)


@dataclass(frozen=True, slots=True)
class Hold:
    """What was taken out of the ceilings for one pass."""

    hold_id: str
    granted: tuple[int, ...]
    """Places of the wanted amounts that fitted; empty: none, and nothing is held."""


class Ledger:
    """Accounts by name and UTC day. Every call is one transaction; calls may come from any thread."""

    def __init__(self, path: str, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """
        Args:
            path: the file, made when it is first needed, on a disk of this node.
            clock: tells the day.
        """
        self._path, self._clock = path, clock
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def reserve(self, accounts: Mapping[str, DayCeilings], wanted: Sequence[Amount]) -> Hold:
        """Hold as many of the wanted amounts as fit below every ceiling, in their order; one that does not fit is
        passed over, and a later, smaller one is not.

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
                    row = (hold_id, account, day, held.nano_usd, held.candidates, held.tokens)
                    db.execute("INSERT INTO held VALUES (?, ?, ?, ?, ?, ?)", row)
        return Hold(hold_id, tuple(granted))

    def settle(self, hold: Hold, actual: Amount) -> None:
        """Put what was spent in the place of what was held.

        Raises:
            ResourceError: the file cannot be used; what was held then counts as spent.
        """
        with self._transaction() as db:
            rows = db.execute(
                "DELETE FROM held WHERE id = ? RETURNING account, day, nano_usd, candidates, tokens", (hold.hold_id,)
            ).fetchall()
            for account, day, nano_usd, candidates, tokens in rows:
                back = Amount(actual.nano_usd - nano_usd, actual.candidates - candidates, actual.tokens - tokens)
                _add(db, day, account, back)

    def spent(self, account: str) -> Amount:
        """Today's spending, with what is held. Raises ResourceError."""
        with self._transaction() as db:
            return _total(db, self._day(), account)

    def resets_at(self) -> datetime:
        """When the next day begins."""
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
        """A connection that no one else writes through until the end, where all is written, or nothing if it raises."""
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
        # Nothing is lost when a process dies; after a power cut the last moments may be missing.
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.executescript(_TABLES)
        return db


def _total(db: sqlite3.Connection, day: str, account: str) -> Amount:
    query = "SELECT nano_usd, candidates, tokens FROM spent WHERE day = ? AND account = ?"
    row = db.execute(query, (day, account)).fetchone()
    return Amount() if row is None else Amount(*row)


def _add(db: sqlite3.Connection, day: str, account: str, amount: Amount) -> None:
    db.execute(
        "INSERT INTO spent VALUES (?, ?, ?, ?, ?) ON CONFLICT (day, account) DO UPDATE SET "
        "nano_usd = nano_usd + excluded.nano_usd, candidates = candidates + excluded.candidates, "
        "tokens = tokens + excluded.tokens",
        (day, account, amount.nano_usd, amount.candidates, amount.tokens),
    )
