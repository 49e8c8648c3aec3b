"""Find JSON values in chat text, including almost valid ones.

In:   any text.
Out:  each outermost list or object in it.
Does not know: plans.

Nothing is ever evaluated. Accepted beyond JSON: trailing commas, single-quoted strings, ``None``/``True``/``False``,
``//`` and ``#`` comments between values, bare line breaks in strings. Unclosed values are ignored. The time is bounded
for any text.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

MAX_CHARS = 400_000
MAX_STEPS = 200_000
"""The search in a text ends when failed attempts to read a value have read this many characters."""
_START_STEPS = 10
"""Minimum cost of an attempt."""
_MAX_DEPTH = 12

_START = re.compile(r"[\[{]")
# A single-quoted string, such as ``'d' Curry House, Reno'``, ends at a quotation mark before a comma, colon or bracket.
_TOKEN = re.compile(
    r"""\s*+(?:"(?P<double>(?:[^"\\]|\\.)*+)"|'(?P<single>(?:[^'\\]|\\.|'(?!\s{0,100}[:,}\]])){0,1000}+)'"""
    r"""|(?P<comment>(?://|\#)[^\n]*)|(?P<mark>[\[\]{}:,])|(?P<word>[A-Za-z]{4,5})"""
    r"""|(?P<number>-?\d{1,30}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?))""",
    re.DOTALL,
)
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_DEEPER = {"[": 1, "{": 1, "]": -1, "}": -1}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class LooseValue(NamedTuple):
    """One list or object in a text."""

    value: Any
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two values of one key."""

    first: Any
    second: Any


def values_in(text: str) -> Iterator[LooseValue]:
    """Every outermost list or object, in the order of the text, up to ``MAX_CHARS``."""
    text = text[:MAX_CHARS]
    position, steps = 0, 0
    while steps < MAX_STEPS and (match := _START.search(text, position)):
        start = match.start()
        try:
            value, position = _JSON.raw_decode(text, start)
        except (ValueError, RecursionError):
            strict, end = _in_strict_json(text, start)
            steps += end - start + _START_STEPS
            try:
                value, position = json.loads(strict, **_READING), end
            except (ValueError, RecursionError):
                position = start + 1
                continue
        yield LooseValue(value, start, position)


def _in_strict_json(text: str, start: int) -> tuple[str, int]:
    """(the almost valid value at ``start`` as JSON, its end or where reading stopped)."""
    parts: list[str] = []
    position, depth = start, 0
    while depth <= _MAX_DEPTH and (match := _TOKEN.match(text, position)):
        kind, position = match.lastgroup, match.end()
        token = match[str(kind)]
        if kind in ("single", "double"):
            parts.append(json.dumps(_ESCAPE.sub(_unescaped, token)))
        elif kind != "comment":
            if token in ("]", "}") and parts[-1] == ",":
                parts.pop()
            parts.append(_PYTHON_WORDS.get(token, token))
            depth += _DEEPER.get(token, 0)
            if depth == 0:
                return "".join(parts), position
    return "", position


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; a repeated key with different values keeps both, because neither may win silently."""
    fields: dict[str, Any] = {}
    for key, value in pairs:
        if key in fields and fields[key] != value:
            value = Conflict(fields[key], value)
        fields[key] = value
    return fields


_READING: dict[str, Any] = {"strict": False, "parse_constant": _no_constant, "object_pairs_hook": _unique}
"""Line breaks may stand in strings."""
_JSON = json.JSONDecoder(**_READING)
