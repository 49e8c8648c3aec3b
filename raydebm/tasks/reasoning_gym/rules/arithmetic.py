"""Arithmetic in a text, computed exactly and without evaluating anything as code."""

import ast
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction

MAX_CHARS = 1_000
_MAX_DIGITS = 30

_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class ExpressionError(ValueError):
    """The text is not an arithmetic expression; the message says why."""


def evaluate(text: str, variables: Mapping[str, int] | None = None) -> tuple[Fraction, list[int]]:
    """The value of an expression of integers and ``+ - * /``, and the integers in it in the order of the text.

    Args:
        text: such as ``"(84 - 75) * 2"``.
        variables: values of the names that may occur; other names are errors.

    Raises:
        ExpressionError: anything else stands in the text, it is too long, or it divides by zero.
    """
    if len(text) > MAX_CHARS:
        raise ExpressionError(f"the expression has {len(text)} characters, more than {MAX_CHARS}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError("it cannot be read as arithmetic") from error
    numbers: list[int] = []
    try:
        return _value(tree.body, variables or {}, numbers), numbers
    except ZeroDivisionError as error:
        raise ExpressionError("it divides by zero") from error
    except RecursionError as error:
        raise ExpressionError("it is nested too deeply") from error


def _value(node: ast.expr, variables: Mapping[str, int], numbers: list[int]) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int and len(str(node.value)) <= _MAX_DIGITS:
        numbers.append(node.value)
        return Fraction(node.value)
    if isinstance(node, ast.Name) and node.id in variables:
        return Fraction(variables[node.id])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand, variables, numbers)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left, variables, numbers), _value(node.right, variables, numbers)
        return _OPERATORS[type(node.op)](left, right)
    raise ExpressionError(f"{ast.unparse(node)[:40]!r} is not an integer, + - * / or brackets")
