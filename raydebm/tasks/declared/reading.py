"""Finds the answer in a completion, as a task file's ``output`` describes it.

In:   any text.
Out:  a JSON value in canonical form, or None; never an exception, and always in time that grows with the text alone.
"""

import json
import re
from typing import Any

from raydebm.constraints.schemas import MAX_DEPTH, below
from raydebm.identity import canonical_json
from raydebm.tasks.answers import find_number, read_number, render_number
from raydebm.tasks.declared.definition import Output

_WORK_PER_CHARACTER = 20
"""Failed starts of JSON may read so many characters for each of the text, so that ``{{{{`` stays cheap."""
_CHOICE_MARK = re.compile(r"####(.*)")
_CHOICE_PHRASE = re.compile(r"\banswer(?: is|:)(.*)", re.IGNORECASE)
_AROUND_CHOICE = " \t*_`'\"().:,;!"


def find_answer(output: Output, text: str) -> Any | None:
    """The answer of a completion in canonical form; None when it has none."""
    if len(text) > output.max_chars or not _is_writable(text):
        return None
    if output.format == "json":
        return find_json(text, want_array=_wants_array(output))
    if output.format == "number":
        number = find_number(text, fallback=True)
        return None if number is None else render_number(number)
    if output.format == "choice":
        return _find_choice(output.choices, text)
    return text.strip() or None


def write_answer(output: Output, answer: Any) -> str:
    """The canonical text that ``find_answer`` reads back."""
    if output.format == "json":
        return json.dumps(answer, ensure_ascii=False)
    return str(answer) if output.format == "text" else f"#### {answer}"


def seen_by_rules(output: Output, answer: Any) -> Any:
    """The answer as constraints see it: numbers are numbers."""
    if output.format != "number":
        return answer
    number = read_number(str(answer))
    if number is None:
        return None
    try:
        return number.numerator if number.denominator == 1 else float(number)
    except OverflowError:
        return None


def find_json(text: str, *, want_array: bool = False) -> Any | None:
    """The last complete JSON object (or array) that stands in the text and not inside another one.

    Nothing is guessed. An object with a key twice, NaN or Infinity, a lone surrogate, or too deep a nesting is no
    answer; nor is a part of an object that is broken or was cut off.
    """
    opening, kind = ("[", list) if want_array else ("{", dict)
    budget = _WORK_PER_CHARACTER * len(text) + 10_000
    found, broken, position = None, False, text.find(opening)
    while position >= 0 and budget > 0:
        try:
            value, end = _DECODER.raw_decode(text, position)
        except json.JSONDecodeError as error:
            end = max(error.pos, position + 1)
            if end > position + 1:  # it began like JSON, so what comes next may be a part of it
                found, broken = None, True
        except (ValueError, RecursionError):  # a number of thousands of digits; brackets of thousands of levels
            end = position + 1
            budget -= 1000
            found, broken = None, True
        else:
            is_part = broken and text[end : end + 80].lstrip()[:1] in _CLOSERS
            found = value if not is_part and isinstance(value, kind) and _is_plain(value) else None
        budget -= end - position
        position = text.find(opening, end)
    return found if budget > 0 else None


_CLOSERS = frozenset(",}]")


class _Ambiguous(dict[str, Any]):
    """An object with a key twice; which value was meant is unknown."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Ambiguous(found)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, strict=False)  # models write line breaks into strings


def _is_plain(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        if any(isinstance(item, _Ambiguous) for item in level):
            return False
        level = below(level)
        if not level:
            break
    else:
        return False
    try:
        return _is_writable(canonical_json(value))
    except ValueError:  # NaN, and 1e999 is infinite
        return False


def _is_writable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _wants_array(output: Output) -> bool:
    return output.json_schema is not None and output.json_schema.get("type") == "array"


def _find_choice(choices: list[str], text: str) -> str | None:
    """A mark decides even when there is no choice behind it: the model has answered then."""
    known = {_bare(choice): choice for choice in choices}
    for pattern in (_CHOICE_MARK, _CHOICE_PHRASE):
        marked = pattern.findall(text)
        if marked:
            return known.get(_bare(marked[-1]))
    lines = [line for line in text.splitlines() if line.strip()]
    return known.get(_bare(lines[-1])) if lines else None


def _bare(text: str) -> str:
    return " ".join(text.strip(_AROUND_CHOICE).casefold().split())
