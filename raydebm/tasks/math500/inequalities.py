r"""Writes inequalities joined by "or" as a union of intervals: ``x < 3 or x > 5`` is ``(-\infty,3)\cup(5,\infty)``.

In:   an answer in LaTeX.
Out:  the union; any other answer as it is. Never an exception.
"""

import math
import re
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from raydebm.tasks.math500.latex import exact_number, normal_form, sympy_form

_MAX_PIECES = 10
_AROUND = re.compile(r"\\(?:left|right)(?![A-Za-z])|\\[()]|\$")
_SET = re.compile(r"\\?\{\s*[A-Za-z]\s*(?:\\mid(?![A-Za-z])|[|:])(.*?)\\?\}", re.DOTALL)
_OR = re.compile(r"\\text\s?\{\s*or\s*\}|(?<![A-Za-z\\])or(?![A-Za-z])|\\(?:lor|vee)(?![A-Za-z])")
_RELATION = re.compile(r"([<>]=?|\\(?:lt|gt|le|ge|leq|geq|leqslant|geqslant)(?![A-Za-z]))")
_VARIABLE = re.compile(r"[A-Za-z]")
_INFINITE = r"\infty"


class _Interval(NamedTuple):
    variable: str
    low: str
    high: str
    brackets: str

    def __str__(self) -> str:
        return f"{self.brackets[0]}{self.low},{self.high}{self.brackets[1]}"


def as_union(answer: str) -> str:
    r"""The union of intervals that the answer describes; the answer itself when it is no such thing.

    Read are inequalities of one variable with "or" between them, and ``\{x \mid ...\}`` around one or more. A comma
    may say "or" as well as "and": it counts as "or" next to another "or", or when the intervals do not overlap.
    """
    text = _AROUND.sub("", sympy_form(answer)).strip()
    if _RELATION.search(text) is None:
        return answer
    in_set = _SET.fullmatch(text)
    said, says_or = _OR.subn(",", text if in_set is None else in_set[1])
    pieces = [piece.strip() for piece in said.split(",") if piece.strip()]
    if not (1 if in_set else 2) <= len(pieces) <= _MAX_PIECES:
        return answer
    intervals = [interval for interval in map(_interval, pieces) if interval is not None]
    if len(intervals) < len(pieces) or len({interval.variable for interval in intervals}) > 1:
        return answer
    if not says_or and not _are_apart(intervals):
        return answer
    return r"\cup".join(map(str, intervals))


def _interval(piece: str) -> _Interval | None:
    r"""The interval of ``x < 3``, ``3 > x`` or ``1 < x \le 3``."""
    parts = [part.strip() for part in _RELATION.split(piece)]
    names = {part for part in parts if _VARIABLE.fullmatch(part)}
    if len(parts) not in (3, 5) or len(names) != 1 or not all(parts) or "=" in "".join(parts[::2]):
        return None
    bounds = {"low": "-" + _INFINITE, "high": _INFINITE}
    opening, closing = "(", ")"
    for left, relation, right in zip(parts[:-2:2], parts[1::2], parts[2::2], strict=True):
        is_closed = "e" in relation or "=" in relation
        smaller, larger = (left, right) if relation[0] == "<" or relation[1:2] == "l" else (right, left)
        if larger in names:
            bounds["low"], opening = smaller, "[" if is_closed else "("
        elif smaller in names:
            bounds["high"], closing = larger, "]" if is_closed else ")"
        else:
            return None
    if len(parts) == 5 and (parts[2] not in names or _INFINITE in bounds["low"] + bounds["high"]):
        return None
    return _Interval(names.pop(), bounds["low"], bounds["high"], opening + closing)


def _are_apart(intervals: list[_Interval]) -> bool:
    """Whether no two overlap, as far as their bounds are numbers."""
    ends = [(_number(interval.low), _number(interval.high)) for interval in intervals]
    known = sorted((low, high) for low, high in ends if low is not None and high is not None)
    return len(known) == len(ends) and all(high <= low for (_, high), (low, _) in pairwise(known))


def _number(bound: str) -> Fraction | float | None:
    if bound.endswith(_INFINITE):
        return -math.inf if bound.startswith("-") else math.inf
    return exact_number(normal_form(bound))
