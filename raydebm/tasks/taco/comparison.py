"""Comparison of outputs and values as in the graders of APPS and TACO; docs/tasks/taco.md lists the differences."""

import math
import re
from decimal import Decimal
from typing import Any

_RELATIVE, _ABSOLUTE = 1e-5, 1e-8
"""Default tolerances of numpy.allclose, which the graders are meant to apply to all numbers."""
_WHOLE = Decimal("1e-6")
"""Tolerance for whole numbers, for rounding errors of float arithmetic: 2.9999999999999996 for 3."""

_NUMERAL = re.compile(r"[-+]?(?:(?!0\d)[\d.]+(?:e[-+]?\d+)?|inf(?:inity)?|nan)", re.ASCII | re.IGNORECASE)
"""Form of a number. Words with leading zeros or Python's underscores are text: "0011" is not 11."""


def same_output(printed: str, expected: str) -> bool:
    """True if all lines have the same words, or words equal as numbers. Spacing and empty lines are ignored.

    Numbers are equal if they differ by at most 1e-5 times the expected one, plus 1e-8. If the expected one is written
    as a whole number, the tolerance is 1e-6 ("4.0" equals "4"), because 1e-5 of 100,000 is a whole unit.
    """
    if printed.strip() == expected.strip():
        return True
    lines, wanted = _lines(printed), _lines(expected)
    if lines == wanted:
        return True
    if len(lines) != len(wanted):
        return False
    return all(_same_words(line.split(), other.split()) for line, other in zip(lines, wanted, strict=True))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


def _same_words(words: list[str], wanted: list[str]) -> bool:
    return len(words) == len(wanted) and all(
        word == other or _close(word, other) for word, other in zip(words, wanted, strict=True)
    )


def _close(word: str, other: str) -> bool:
    if len(word) > 400 or len(other) > 400 or not (_NUMERAL.fullmatch(word) and _NUMERAL.fullmatch(other)):
        return False
    try:
        if _is_whole(other):
            # Decimals, because "1e999999999" is as cheap for them as "1".
            return abs(Decimal(word) - Decimal(other)) <= _WHOLE
        number, wanted = float(word), float(other)
    except (ValueError, ArithmeticError):  # ArithmeticError from Decimal, also for a difference that is too large
        return False
    if not (math.isfinite(number) and math.isfinite(wanted)):
        return number == wanted
    return abs(number - wanted) <= _ABSOLUTE + _RELATIVE * abs(wanted)


def _is_whole(word: str) -> bool:
    digits = word.removeprefix("-").removeprefix("+")
    return digits.isascii() and digits.isdigit()


def same_value(returned: Any, expected: Any) -> bool:
    """True for equal values, where tuples count as lists. The data sets wrap most expected values in a list, so the
    returned value may also equal the first item of an expected list.

    Args:
        returned: plain data from the sandbox.
        expected: JSON value. An object may have texts as keys where the program has whole numbers.
    """
    value = without_tuples(returned)
    if _equal(value, without_tuples(expected)):
        return True
    return isinstance(expected, list) and bool(expected) and _equal(value, without_tuples(expected[0]))


def same_literal(returned: Any, expected: Any) -> bool:
    """True for values equal by ``==``, with the graders' tolerance for floats. A list does not equal a tuple."""
    if isinstance(expected, list | tuple):
        return (
            isinstance(returned, list | tuple)
            and isinstance(returned, list) is isinstance(expected, list)
            and len(returned) == len(expected)
            and all(map(same_literal, returned, expected))
        )
    if isinstance(expected, dict):
        return (
            isinstance(returned, dict)
            and returned.keys() == expected.keys()
            and all(same_literal(returned[key], value) for key, value in expected.items())
        )
    if isinstance(expected, float) and isinstance(returned, int | float):
        return returned == expected or _is_near(returned, expected)
    return bool(returned == expected)


def _is_near(number: float, wanted: float) -> bool:
    try:
        return math.isclose(number, wanted, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
    except OverflowError:  # an integer is too large for a float
        return False


def _equal(value: Any, wanted: Any) -> bool:
    try:
        return bool(value == wanted or (isinstance(wanted, dict) and value == _with_whole_keys(wanted)))
    except RecursionError:
        return False


def _with_whole_keys(value: dict[str, Any]) -> dict[Any, Any] | None:
    try:
        return {int(key): entry for key, entry in value.items()}
    except (ValueError, TypeError):
        return None


def without_tuples(value: Any) -> Any:
    """The value with lists in place of tuples, as in JSON."""
    if isinstance(value, list | tuple):
        return [without_tuples(part) for part in value]
    if isinstance(value, dict):
        return {key: without_tuples(part) for key, part in value.items()}
    return value
