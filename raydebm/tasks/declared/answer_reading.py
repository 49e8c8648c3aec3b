"""Find the answer in a completion in the format of a task file's ``output``.

In:   any text.
Out:  a JSON value in canonical form, or None; always without an exception, and in linear time.
"""

import json
from typing import Any

from raydebm.identity import canonical_json
from raydebm.tasks.answers import find_number, read_number, render_number
from raydebm.tasks.choices import Choices, bare
from raydebm.tasks.constraints.patterns import compile_pattern
from raydebm.tasks.constraints.schemas import MAX_DEPTH, below
from raydebm.tasks.declared.definition import Output

_MAX_CHARS = 100_000
_WORK_PER_CHARACTER = 20
"""Characters that attempts to read JSON may read per character of the text, so that ``{{{{`` is cheap."""
_MAX_READ = 50_000_000
"""Characters that the matches of a pattern may read. Each match may scan the rest of the text."""


def find_answer(output: Output, text: str, choices: list[str] | None = None) -> Any | None:
    """Answer of a completion in canonical form, or None. A completion of more than ``_MAX_CHARS`` characters has none.
    ``choices`` are those that the row allows, by default all."""
    if len(text) > _MAX_CHARS or not _is_writable(text):
        return None
    if output.format == "json":
        return find_json(text, want_array=_wants_array(output))
    if output.format == "number":
        number = find_number(text, fallback=True)
        return None if number is None else render_number(number)
    if output.format == "choice":
        return Choices({name: name for name in (output.choices if choices is None else choices)}).find(text)
    if output.format == "pattern":
        return next(filter(None, (_last_match(pattern, text) for pattern in output.patterns)), None)
    return text.strip() or None


def _last_match(pattern: str, text: str) -> str | None:
    """The last match that is not blank. None if there is none, or if the matches read more than ``_MAX_READ``."""
    compiled, found, read = compile_pattern(pattern), None, 0
    for match in compiled.finditer(text):
        found = (match.group(1 if compiled.groups else 0) or "").strip() or found
        read += len(text) - match.start()
        if read > _MAX_READ:
            return None
    return found


def write_answer(output: Output, answer: Any) -> str:
    """Canonical text of an answer, which ``find_answer`` reads back, except for patterns: their text has no mark."""
    if output.format == "json":
        return json.dumps(answer, ensure_ascii=False)
    return str(answer) if output.format in ("text", "pattern") else f"#### {answer}"


def seen_by_rules(output: Output, answer: Any) -> Any:
    """The answer as constraints read it, with numbers as numbers; None for a number that is too large for a float."""
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
    """The last complete outermost JSON object (or array) in the text.

    Nothing is guessed: an object with a repeated key, NaN or Infinity, a lone surrogate, or too many levels is not an
    answer, nor is a part of a broken or truncated object.
    """
    opening, kind = ("[", list) if want_array else ("{", dict)
    budget = _WORK_PER_CHARACTER * len(text) + 10_000
    last_value, broken, position = None, False, text.find(opening)
    while position >= 0 and budget > 0:
        try:
            value, end = _DECODER.raw_decode(text, position)
        except json.JSONDecodeError as error:
            end = max(error.pos, position + 1)
            if end > position + 1:  # it began like JSON, so the text after it may be part of it
                last_value, broken = None, True
        except (ValueError, RecursionError):  # a number of thousands of digits; brackets of thousands of levels
            end = position + 1
            budget -= 1000
            last_value, broken = None, True
        else:
            is_part = broken and text[end : end + 80].lstrip()[:1] in _CLOSERS
            last_value = value if not is_part and isinstance(value, kind) and _is_plain(value) else None
        budget -= end - position
        position = text.find(opening, end)
    return last_value if budget > 0 else None


_CLOSERS = frozenset(",}]")


class _Ambiguous(dict[str, Any]):
    """An object with a repeated key, so that its intended value is unknown."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else _Ambiguous(fields)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, strict=False)  # models write line breaks into strings


def _is_plain(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        if any(isinstance(part, _Ambiguous) for part in level):
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


def named_choice(choices: list[str], text: str) -> str | None:
    """The choice that is the whole text apart from case and surrounding punctuation, or None."""
    return {bare(choice): choice for choice in choices}.get(bare(text))
