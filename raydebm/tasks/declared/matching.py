"""When an answer is the reference answer."""

from fractions import Fraction
from typing import Any

from raydebm.constraints.expressions import EvaluationError
from raydebm.constraints.json_values import is_number, key_of
from raydebm.constraints.templates import short_text
from raydebm.errors import TaskDataError
from raydebm.tasks.answers import read_number
from raydebm.tasks.declared.definition import GoldRule


def check_gold(rule: GoldRule, value: Any, where: str) -> None:
    """Raises TaskDataError when no answer could ever match the value."""
    if rule.match == "number" and _number(value) is None:
        raise TaskDataError(f"{where}: field {rule.field!r} must be a number, got {value!r:.60}")
    if rule.match == "set" and not isinstance(value, list):
        raise TaskDataError(f"{where}: field {rule.field!r} must be a list, got {value!r:.60}")
    if rule.match == "exact" and isinstance(value, list | dict):
        raise TaskDataError(f"{where}: field {rule.field!r} must be a text or a number; use match: json or set")


def mismatch(rule: GoldRule, value: Any, wanted: Any) -> str | None:
    """Why the answer is wrong; None when it is right."""
    if value is None:
        return f"nothing at {rule.value}"
    try:
        matches = {"number": _same_number, "set": _same_set}.get(rule.match, _same_value)(rule, value, wanted)
    except EvaluationError as error:
        return str(error)
    return None if matches else f"answered {short_text(value)}, not {short_text(wanted)}"


def _same_number(rule: GoldRule, value: Any, wanted: Any) -> bool:
    answered, expected = _number(value), _number(wanted)
    return None not in (answered, expected) and abs(answered - expected) <= Fraction(rule.tolerance)  # type: ignore[operator]


def _same_set(rule: GoldRule, value: Any, wanted: Any) -> bool:
    if not isinstance(value, list):
        return False
    return _keys(rule, value) == _keys(rule, wanted)


def _same_value(rule: GoldRule, value: Any, wanted: Any) -> bool:
    return _key(rule, value) == _key(rule, wanted)


def _keys(rule: GoldRule, values: list[Any]) -> set[str]:
    return {_key(rule, value) for value in values}


def _key(rule: GoldRule, value: Any) -> str:
    return key_of(value.strip() if isinstance(value, str) else value, ignore_case=rule.ignore_case)


def _number(value: Any) -> Fraction | None:
    if is_number(value):
        try:
            return Fraction(str(value))
        except (ValueError, OverflowError):
            return None
    return read_number(value) if isinstance(value, str) else None
