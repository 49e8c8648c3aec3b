"""Comparison of answers with the reference answer."""

import json
from fractions import Fraction
from typing import Any

from raydebm.errors import TaskDataError
from raydebm.tasks.answers import read_number, render_number
from raydebm.tasks.constraints.expressions import EvaluationError, is_number, key_of
from raydebm.tasks.constraints.templates import full_text, short_text
from raydebm.tasks.declared.answer_reading import named_choice
from raydebm.tasks.declared.definition import GoldRule, Output
from raydebm.tasks.formulas import is_equivalent


def check_gold(rule: GoldRule, output: Output, value: Any, where: str) -> None:
    """Raise TaskDataError if the rule cannot match any answer with the value."""
    if rule.match == "number" and _number(value) is None:
        raise TaskDataError(f"{where}: field {rule.field!r} must be a number, got {value!r:.60}")
    if rule.match == "set" and not isinstance(value, list):
        raise TaskDataError(f"{where}: field {rule.field!r} must be a list, got {value!r:.60}")
    if rule.match in ("exact", "latex") and isinstance(value, list | dict):
        raise TaskDataError(f"{where}: field {rule.field!r} must be a text or a number; use match: json or set")
    if _expected(rule, output, value) is None:
        kind = "a number" if output.format == "number" else f"one of the choices {', '.join(output.choices)}"
        raise TaskDataError(f"{where}: field {rule.field!r} must be {kind}, as answers are; got {value!r:.60}")


def mismatch(rule: GoldRule, output: Output, value: Any, wanted: Any) -> str | None:
    """Reason why the answer is wrong; None if it is right. Raises LibraryError if formulas cannot be compared."""
    if value is None:
        return f"nothing at {rule.value}"
    expected = _expected(rule, output, wanted)
    try:
        matches = {"number": _same_number, "set": _same_set, "json": _same_value, "latex": _same_formula}.get(
            rule.match, _same_text
        )
        if matches(rule, value, expected):
            return None
    except EvaluationError as error:
        return str(error)
    return f"answered {_quoted(value)}, not {_quoted(expected)}"


def _expected(rule: GoldRule, output: Output, wanted: Any) -> Any:
    """Gold in the form of parsed answers if whole answers are compared, else unchanged; None without such a form."""
    if rule.value != "answer" or rule.match not in ("exact", "json"):
        return wanted
    if output.format == "number":
        number = _number(wanted)
        return None if number is None else render_number(number)
    if output.format == "choice":
        return named_choice(output.choices, wanted if isinstance(wanted, str) else full_text(wanted))
    return wanted


def _same_number(rule: GoldRule, value: Any, wanted: Any) -> bool:
    answered, expected = _number(value), _number(wanted)
    return None not in (answered, expected) and abs(answered - expected) <= Fraction(rule.tolerance)  # type: ignore[operator]


def _same_set(rule: GoldRule, value: Any, wanted: Any) -> bool:
    if not isinstance(value, list):
        return False
    answered, expected = ({compared(rule, part) for part in values} for values in (value, wanted))
    return answered == expected


def _same_value(rule: GoldRule, value: Any, wanted: Any) -> bool:
    return compared(rule, value) == compared(rule, wanted)


def _same_text(rule: GoldRule, value: Any, wanted: Any) -> bool:
    """True for equal values. If only one of the two is text (everything in a CSV file is), it is parsed as JSON."""
    if isinstance(value, str) is not isinstance(wanted, str):
        value, wanted = (_written(part) if isinstance(part, str) else part for part in (value, wanted))
    return _same_value(rule, value, wanted)


def _same_formula(rule: GoldRule, value: Any, wanted: Any) -> bool:
    return _same_text(rule, value, wanted) or is_equivalent(full_text(wanted), full_text(value))


def _written(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def compared(rule: GoldRule, value: Any) -> str:
    """Key of a value. Values that are equal under the rule have equal keys, except for formulas and numbers."""
    if isinstance(value, str):
        value = "".join(value.split()).rstrip(".") if rule.ignore_space else value.strip()
        value = value.casefold() if rule.ignore_case else value
    return key_of(value)


def _quoted(value: Any) -> str:
    """Short text of a value, in quotation marks if it is text, which may look like a number."""
    return short_text(json.dumps(value, ensure_ascii=False) if isinstance(value, str) else value)


def _number(value: Any) -> Fraction | None:
    if is_number(value):
        try:
            return Fraction(str(value))
        except (ValueError, OverflowError):
            return None
    return read_number(value) if isinstance(value, str) else None
