"""Extraction and normal form of answers."""

import re
from fractions import Fraction
from typing import Any

from raydebm.identity import canonical_json
from raydebm.tasks.answers import render_number
from raydebm.tasks.sources import written_value

OPEN, CLOSE = "<answer>", "</answer>"

MAX_STRUCTURE_CHARS = 20_000
"""Maximum length of a list or map; a longer one is compared as text."""

_SPACES = re.compile(r"[ \t\u00a0]+")
_DECIMAL = re.compile(r"[-+]?(?:0|[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d{0,40})(?:\.\d{1,40})?")
"""Numbers without leading zeros, because these matter in strings of bits."""
_WORD = re.compile(r"[A-Za-z]+")
"""Answer of one word, whose case does not matter: True, yes, Grandfather."""
_HEXADECIMAL = re.compile(r"-?0[xX][0-9a-fA-F]{1,60}")


def find_answer(text: str) -> str | None:
    """Content of the last complete ``<answer>`` part, without surrounding whitespace; None without one, or if empty."""
    start = text.rfind(OPEN, 0, max(text.rfind(CLOSE), 0))
    if start < 0:
        return None
    return text[start + len(OPEN) : text.find(CLOSE, start)].strip() or None


def normal_form(answer: str) -> str:
    """Normal form, equal for equivalent answers.

    In one line, runs of whitespace count as one space. In several lines, which may be a drawing, only whitespace at
    their ends is ignored. Also ignored are the case of a single word, commas in numbers, trailing zeros of decimals,
    and the spaces and the kind of quotes of a list or map in JSON or Python.
    """
    lines = answer.strip().splitlines()
    text = "\n".join(line.rstrip() for line in lines) if len(lines) > 1 else _SPACES.sub(" ", "".join(lines))
    if _DECIMAL.fullmatch(text):
        return render_number(Fraction(text.replace(",", "")))
    if _HEXADECIMAL.fullmatch(text):
        return hex(int(text, 16))
    if _WORD.fullmatch(text):
        return text.lower()
    structure = _structure(text)
    return text if structure is None else canonical_json(structure)


def _structure(text: str) -> Any | None:
    if text[:1] not in ("[", "{", "(") or len(text) > MAX_STRUCTURE_CHARS:
        return None
    try:
        structure = _plain(written_value(text))
    except (TypeError, RecursionError):
        return None
    return structure if isinstance(structure, list | dict) else None


def _plain(value: Any) -> Any:
    """The value as JSON: tuples become lists, keys become text, whole floats become integers.

    Raises:
        TypeError: a value has no JSON form, such as a set or bytes.
    """
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and value - value == 0:
        return int(value) if value.is_integer() else value
    raise TypeError(f"{type(value).__name__} is not part of JSON")
