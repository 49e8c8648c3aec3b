"""A table of text, and numbers as its cells; the same for Markdown, HTML and the terminal."""

from dataclasses import dataclass

from raydebm.evaluation.stats.intervals import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Text cells; every row is as long as ``headers``."""

    title: str
    caption: str
    """How to read it."""
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    emphasised: tuple[int, ...] = ()
    """Rows to set apart (ours)."""


def percent(estimate: Estimate, *, digits: int = 1) -> str:
    """A share in per cent, or ``-``."""
    return "-" if estimate.value is None else f"{100 * estimate.value:.{digits}f}"


def interval(estimate: Estimate, *, scale: float = 100, digits: int = 1) -> str:
    """``[low, high]``, or ``-`` without an interval."""
    if estimate.low is None or estimate.high is None:
        return "-"
    return f"[{scale * estimate.low:.{digits}f}, {scale * estimate.high:.{digits}f}]"


def with_interval(estimate: Estimate) -> str:
    """A share in percent with its interval."""
    return "-" if estimate.value is None else f"{percent(estimate)} {interval(estimate)}"


def number(estimate: Estimate, *, digits: int = 3, signed: bool = False) -> str:
    """A number that is not a share, with its interval; a difference also with its sign."""
    if estimate.value is None:
        return "-"
    return f"{estimate.value:{'+' if signed else ''}.{digits}f} {interval(estimate, scale=1, digits=digits)}"


def points(estimate: Estimate) -> str:
    """A difference of shares in percentage points, with its sign and interval."""
    return "-" if estimate.value is None else f"{100 * estimate.value:+.1f} {interval(estimate)}"
