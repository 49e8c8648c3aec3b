"""What was spent on each day, in a SQLite file that all ingress replicas share.

Before candidates are asked for, the most that they may cost is taken out of every ceiling at once; afterwards the
difference to what they did cost is put back. So parallel requests together stay below a ceiling, and when a process is
killed in between, what it held counts as spent.
Does not know: requests, Ray, HTTP.
"""

import math
import sqlite3
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from raydebm.serving.spending.sqlite_file import SqliteFile

NANO = 1_000_000_000
MAX_USD = 1e8
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


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Most of each kind on one day; None: no limit."""

    nano_usd: int | None = None
    candidates: int | None = None
    tokens: int | None = None

    def covers(self, amount: Amount) -> bool:
        """Whether an amount stays within it."""
        pairs = (
            (amount.nano_usd, self.nano_usd),
            (amount.candidates, self.candidates),
            (amount.tokens, self.tokens),
        )
        return all(most is None or value <= most for value, most in pairs)


@dataclass(frozen=True, slots=True)
class Hold:
    """What was taken out of the ceilings for one pass."""

    hold_id: str
    granted: tuple[int, ...]
    """Places of the wanted amounts that fitted; empty: none, and nothing is held."""


class Ledger:
    """Accounts by name and UTC day. Every call is one transaction; calls may come from any thread."""

    def __init__(
        self, path: str, *, across_nodes: bool = False, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """
        Args:
            path, across_nodes: see ``SqliteFile``.
            clock: tells the day.
        """
        self._file = SqliteFile(path, tables=_TABLES, name="ledger", across_nodes=across_nodes)
        self._clock = clock

    def reserve(self, accounts: Mapping[str, Ceiling], wanted: Sequence[Amount]) -> Hold:
        """Hold as many of the wanted amounts as fit below every ceiling, in their order; one that does not fit is
        passed over, and a later, smaller one is not.

        Raises:
            ResourceError: the file cannot be used.
        """
        hold_id, day = uuid.uuid4().hex, self._day()
        with self._file.transaction() as db:
            totals = {account: _total(db, day, account) for account in accounts}
            held, granted = Amount(), []
            for place, amount in enumerate(wanted):
                more = held + amount
                if all(ceiling.covers(totals[account] + more) for account, ceiling in accounts.items()):
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
        with self._file.transaction() as db:
            rows = db.execute(
                "DELETE FROM held WHERE id = ? RETURNING account, day, nano_usd, candidates, tokens", (hold.hold_id,)
            ).fetchall()
            for account, day, nano_usd, candidates, tokens in rows:
                back = Amount(actual.nano_usd - nano_usd, actual.candidates - candidates, actual.tokens - tokens)
                _add(db, day, account, back)

    def spent(self, account: str) -> Amount:
        """What was spent today, what is held included. Raises ResourceError."""
        with self._file.transaction() as db:
            return _total(db, self._day(), account)

    def resets_at(self) -> datetime:
        """When the next day begins."""
        now = self._clock()
        return (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _day(self) -> str:
        return self._clock().date().isoformat()


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
