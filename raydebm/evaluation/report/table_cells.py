"""Tables of text: a row builder for all reports, and number formats."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from raydebm.evaluation.certainty.reliability import CalibrationError
from raydebm.evaluation.stats.intervals import Estimate

Row = TypeVar("Row")
Cell = str | int | Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Text cells. Every row has the length of ``headers``."""

    title: str
    caption: str
    """Explanation of the columns."""
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    emphasised: tuple[int, ...] = ()
    """Indices of highlighted rows (ours)."""
    notes: tuple[str, ...] = ()
    """Notes, numbered below the table."""
    is_folded: bool = False
    """Whether a page shows only the title until it is opened."""


def table_of(
    title: str,
    caption: str,
    rows: Iterable[Row],
    columns: Mapping[str, Callable[[Row], Cell]],
    *,
    emphasised: Callable[[Row], bool] = lambda row: False,
) -> Table:
    """Build a table with a row per item and a column per header.

    Args:
        columns: Cell of an item by header. An ``Estimate`` is shown as a share in per cent with its interval.
    """
    rows = list(rows)
    return Table(
        title=title,
        caption=caption,
        headers=tuple(columns),
        rows=tuple(tuple(text_of(cell(row)) for cell in columns.values()) for row in rows),
        emphasised=tuple(index for index, row in enumerate(rows) if emphasised(row)),
    )


def facts_table(title: str, caption: str, facts: Iterable[tuple[str, Cell]]) -> Table:
    """Table of names and values."""
    return table_of(title, caption, facts, {"what": lambda fact: fact[0], "value": lambda fact: fact[1]})


def text_of(cell: Cell) -> str:
    """Cell as text; ``-`` for None."""
    if isinstance(cell, Estimate):
        return with_interval(cell)
    return "-" if cell is None else cell if isinstance(cell, str) else f"{cell:,}"


def decimal(value: float | None, digits: int = 3, *, scale: float = 1.0) -> str:
    """Number without an interval, or ``-``."""
    return "-" if value is None else f"{scale * value:,.{digits}f}"


def percent(estimate: Estimate) -> str:
    """Share in per cent, or ``-``."""
    return decimal(estimate.value, 1, scale=100)


def interval(estimate: Estimate, *, scale: float = 100, digits: int = 1) -> str:
    """``[low, high]``, or ``-`` without an interval."""
    if estimate.low is None or estimate.high is None:
        return "-"
    return f"[{scale * estimate.low:.{digits}f}, {scale * estimate.high:.{digits}f}]"


def _in_brackets(estimate: Estimate, *, scale: float = 100, digits: int = 1) -> str:
    return "[n/a]" if estimate.low is None else interval(estimate, scale=scale, digits=digits)


def with_interval(estimate: Estimate) -> str:
    """Share in per cent with its interval, or with ``[n/a]`` without one."""
    return "-" if estimate.value is None else f"{percent(estimate)} {_in_brackets(estimate)}"


def number(estimate: Estimate, *, digits: int = 3, signed: bool = False) -> str:
    """Number that is not a share, with its interval; a difference also has its sign."""
    if estimate.value is None:
        return "-"
    return f"{estimate.value:{'+' if signed else ''}.{digits}f} {_in_brackets(estimate, scale=1, digits=digits)}"


def points(estimate: Estimate) -> str:
    """Difference of shares in percentage points, with its sign and interval."""
    return "-" if estimate.value is None else f"{100 * estimate.value:+.1f} {_in_brackets(estimate)}"


ECE_HEADERS = ("ECE", "if perfect")
ECE_IN_WORDS = (
    "expected calibration error in ten bins of equal mass; next to it what a perfectly calibrated probability would "
    "have on as many problems, on average and at most with 95 % chance"
)


def ece_cells(error: CalibrationError) -> tuple[str, str]:
    """Calibration error, and its value under perfect calibration, for ``ECE_HEADERS``."""
    if error.perfect is None or error.perfect_high is None:
        return decimal(error.value), "-"
    return decimal(error.value), f"{error.perfect:.3f}, at most {error.perfect_high:.3f}"


def ece_in_words(error: CalibrationError) -> str:
    """Calibration error with its n and, if known, its value under perfect calibration."""
    value, perfect = ece_cells(error)
    if perfect == "-":
        return f"{value} (n={error.n})"
    return f"{value} (a perfectly calibrated one: {perfect} with 95 % chance, n={error.n})"
