"""Find JSON values in chat text, including almost valid ones.

In:   any text.
Out:  each outermost list or object in it, with the repairs needed to parse it.
Does not know: plans.

Nothing is ever evaluated. Accepted beyond JSON: trailing commas, single-quoted strings, ``None``/``True``/``False``,
``//`` and ``#`` comments between values, bare line breaks in strings. Unclosed values are ignored. The time is bounded
for any text.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MAX_CHARS = 400_000
MAX_STEPS = 200_000
"""The search in a text ends when failed attempts to read a value have read this many characters."""
_START_STEPS = 10
"""Minimum cost of an attempt."""
_MAX_APOSTROPHES = 500
"""Maximum number of apostrophes inside a single-quoted string."""
_MAX_DEPTH = 12

_START = re.compile(r"[\[{]")
_BLANK = re.compile(r"\s*")
_COMMENT = re.compile(r"(?://|#)[^\n]*")
_NUMBER = re.compile(r"-?\d{1,30}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?")
_WORD = re.compile(r"[A-Za-z]{4,5}")
_WORDS = {"true": True, "false": False, "null": None}
_PYTHON_WORDS = {"True": True, "False": False, "None": None}
_STRINGS = {
    '"': re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL),
    "'": re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL),
}
_SINGLE_END = re.compile(r"'(?=\s*[:,}\]])")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LooseValue:
    """One list or object in a text."""

    value: Any
    repairs: tuple[str, ...]
    start: int
    end: int


class _NoValueError(Exception):
    """There is no value here, not even an almost valid one."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


def values_in(text: str) -> Iterator[LooseValue]:
    """Every outermost list or object, in the order of the text, up to ``MAX_CHARS``."""
    text = text[:MAX_CHARS]
    position, steps = 0, 0
    while steps < MAX_STEPS and (match := _START.search(text, position)):
        start = match.start()
        value, looked_at = _value_at(text, start)
        steps += looked_at + _START_STEPS
        if value is not None:
            yield value
        position = start + 1 if value is None else value.end


def _value_at(text: str, start: int) -> tuple[LooseValue | None, int]:
    """(value that begins at ``start`` or None, number of characters read in vain)."""
    try:
        value, end = _STRICT.raw_decode(text, start)
        return LooseValue(value, (), start, end), 0
    except json.JSONDecodeError as error:
        looked_at = max(error.pos - start, 1)
    except (RecursionError, ValueError):  # ValueError: a number with thousands of digits
        looked_at = 10_000
    reader = _LooseReader(text)
    try:
        value, end = reader.value(start, depth=0)
    except _NoValueError as error:
        return None, looked_at + max(error.position - start, 1)
    return LooseValue(value, tuple(dict.fromkeys(reader.repairs)), start, end), looked_at


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


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two values of one key."""

    first: Any
    second: Any


_STRICT = json.JSONDecoder(strict=True, parse_constant=_no_constant, object_pairs_hook=_unique)


class _LooseReader:
    """Recursive-descent parser of one text that notes its repairs."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.repairs: list[str] = []

    def value(self, position: int, *, depth: int) -> tuple[Any, int]:
        if depth > _MAX_DEPTH or position >= len(self.text):
            raise _NoValueError(position)
        character = self.text[position]
        if character == "[":
            return self._list(position, depth=depth)
        if character == "{":
            return self._object(position, depth=depth)
        if character in _STRINGS:
            return self._string(position)
        if match := _NUMBER.match(self.text, position):
            return _number(match[0]), match.end()
        return self._word(position)

    def _list(self, position: int, *, depth: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        position, is_end = self._next(position + 1, "]", is_first=True)
        while not is_end:
            value, position = self.value(position, depth=depth + 1)
            items.append(value)
            position, is_end = self._next(position, "]", is_first=False)
        return items, position

    def _object(self, position: int, *, depth: int) -> tuple[dict[str, Any], int]:
        pairs: list[tuple[str, Any]] = []
        position, is_end = self._next(position + 1, "}", is_first=True)
        while not is_end:
            if self.text[position] not in _STRINGS:
                raise _NoValueError(position)
            key, position = self._string(position)
            position = self._skip(position)
            if self.text[position : position + 1] != ":":
                raise _NoValueError(position)
            value, position = self.value(self._skip(position + 1), depth=depth + 1)
            pairs.append((key, value))
            position, is_end = self._next(position, "}", is_first=False)
        return _unique(pairs), position

    def _next(self, position: int, closing: str, *, is_first: bool) -> tuple[int, bool]:
        """(start of the next item or end of the value, True at the end)."""
        position = self._skip(position)
        separated = self.text[position : position + 1] == ","
        if separated and not is_first:
            position = self._skip(position + 1)
        character = self.text[position : position + 1]
        if character == closing:
            if separated and not is_first:
                self.repairs.append("trailing comma")
            return position + 1, True
        if not character or (not is_first and not separated):
            raise _NoValueError(position)
        return position, False

    def _skip(self, position: int) -> int:
        """Skip blanks and comments."""
        while True:
            position = _end_of(_BLANK, self.text, position)
            end = _end_of(_COMMENT, self.text, position)
            if end == position:
                return position
            self.repairs.append("comment")
            position = end

    def _string(self, position: int) -> tuple[str, int]:
        quote = self.text[position]
        match = _STRINGS[quote].match(self.text, position)
        if match is None:
            raise _NoValueError(position)
        raw, end = match[1], match.end()
        if quote == "'":
            self.repairs.append("single quotes")
            raw, end = self._apostrophes(position, raw, end)
        if "\n" in raw:
            self.repairs.append("line break in a string")
        return _ESCAPE.sub(_unescaped, raw) if "\\" in raw else raw, end

    def _apostrophes(self, position: int, raw: str, end: int) -> tuple[str, int]:
        """Content and end of a string such as ``'d' Curry House, Reno'``, which ends before a comma, colon, bracket."""
        if self.text[end - 1] == "'" and _SINGLE_END.match(self.text, end - 1):
            return raw, end
        limit = position + _MAX_APOSTROPHES
        line_end = self.text.find("\n", position, limit)
        match = _SINGLE_END.search(self.text, end, limit if line_end < 0 else line_end + 1)
        if match is None:
            return raw, end
        self.repairs.append("apostrophe in single quotes")
        return self.text[position + 1 : match.start()], match.end()

    def _word(self, position: int) -> tuple[Any, int]:
        match = _WORD.match(self.text, position)
        if match and match[0] in _WORDS:
            return _WORDS[match[0]], match.end()
        if match and match[0] in _PYTHON_WORDS:
            self.repairs.append(f"{match[0]} as Python writes it")
            return _PYTHON_WORDS[match[0]], match.end()
        raise _NoValueError(position)


def _end_of(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return position if match is None else match.end()


def _number(text: str) -> int | float:
    return float(text) if any(mark in text for mark in ".eE") else int(text)


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) == 5:
        return chr(int(code[1:], 16))
    return _ESCAPES.get(code, code)
