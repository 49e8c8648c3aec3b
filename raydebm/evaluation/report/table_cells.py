"""A table of text, and numbers as its cells; the same for Markdown, HTML and the terminal."""

from dataclasses import dataclass

from raydebm.evaluation.certainty.calibration_error import CalibrationError
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


def _in_brackets(estimate: Estimate, *, scale: float = 100, digits: int = 1) -> str:
    return "[n/a]" if estimate.low is None else interval(estimate, scale=scale, digits=digits)


def with_interval(estimate: Estimate) -> str:
    """A share in percent with its interval, or with ``[n/a]`` where it has none."""
    return "-" if estimate.value is None else f"{percent(estimate)} {_in_brackets(estimate)}"


def number(estimate: Estimate, *, digits: int = 3, signed: bool = False) -> str:
    """A number that is not a share, with its interval; a difference also with its sign."""
    if estimate.value is None:
        return "-"
    return f"{estimate.value:{'+' if signed else ''}.{digits}f} {_in_brackets(estimate, scale=1, digits=digits)}"


def points(estimate: Estimate) -> str:
    """A difference of shares in percentage points, with its sign and interval."""
    return "-" if estimate.value is None else f"{100 * estimate.value:+.1f} {_in_brackets(estimate)}"


ECE_HEADERS = ("ECE", "if perfect")
ECE_IN_WORDS = (
    "expected calibration error in ten bins of equal mass; next to it what a perfectly calibrated probability would "
    "have on as many problems, on average and at most with 95 % chance"
)


def ece_cells(error: CalibrationError) -> tuple[str, str]:
    """The error, and that of a perfectly calibrated probability, under ``ECE_HEADERS``."""
    value = "-" if error.value is None else f"{error.value:.3f}"
    if error.perfect is None or error.perfect_high is None:
        return value, "-"
    return value, f"{error.perfect:.3f}, at most {error.perfect_high:.3f}"


def ece_in_words(error: CalibrationError) -> str:
    """The error with its n and, where it is known, what a perfectly calibrated probability would have."""
    value, perfect = ece_cells(error)
    if perfect == "-":
        return f"{value} (n={error.n})"
    return f"{value} (a perfectly calibrated one: {perfect} with 95 % chance, n={error.n})"
