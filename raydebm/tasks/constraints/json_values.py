"""JSON values in constraints: equality, numbers, and names of types."""

import math
from typing import Any

from raydebm.identity import canonical_json
from raydebm.tasks.constraints.expressions import EvaluationError


def key_of(value: Any) -> str:
    """Key of a JSON value; equal values have equal keys. 1 equals 1.0; true is not a number.

    Raises:
        EvaluationError: not JSON (NaN), or nested too deeply.
    """
    try:
        return canonical_json(_plain(value))
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise EvaluationError(f"a value cannot be compared: {str(error)[:100]}") from error


def is_number(value: Any) -> bool:
    """True for numbers, False for booleans."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def number_of(value: Any) -> float:
    """The value as a finite float.

    Raises:
        EvaluationError: infinite, NaN, or too large for a float.
    """
    try:
        number = float(value)
    except OverflowError as error:
        raise EvaluationError("a number is too large to compare") from error
    if not math.isfinite(number):
        raise EvaluationError(f"{number} is not a number to compare")
    return number


def kind_of(value: Any) -> str:
    """Name of a value's type, for people and models."""
    if value is None:
        return "nothing"
    names = {bool: "true or false", str: "text", list: "a list", dict: "an object", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return value
