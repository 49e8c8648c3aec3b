"""JMESPath expressions on ``{"answer": ..., "problem": ...}``, sandboxed and bounded.

In:   an expression such as ``sum(answer.items[].price)`` and a ``RuleInput``.
Out:  a JSON value, or ``EvaluationError`` with the reason; not another exception, and within a fixed number of steps.

JMESPath has its own syntax and parser, so names in an expression do not reach Python. In addition to the standard's
functions there are ``add``, ``subtract``, ``multiply``, ``divide``, ``lower`` and ``words``. ``to_string`` is left out,
because its cost is unbounded.
"""

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import jmespath
from jmespath import exceptions, functions, visitor

from raydebm.errors import ConstraintError
from raydebm.identity import canonical_json

ROOTS = ("answer", "problem")
MAX_CHARS = 500
MAX_STEPS = 300_000
"""Maximum number of steps by default: about half a second, and enough for a list of 50,000 elements."""
MAX_MULTI_SELECTS, MAX_MULTI_SELECT_ITEMS = 2, 8
"""Maximum number of multi-selects in an expression, and of their items. Each multiplies the size of its input."""

_EVALUATION_ERRORS = (
    exceptions.JMESPathError, TypeError, ValueError, ArithmeticError, RecursionError, AttributeError, LookupError,
)  # fmt: skip
_FIRST_CHILD_AT_ROOT = frozenset(
    {"subexpression", "index_expression", "projection", "value_projection", "filter_projection", "pipe"}
)


class EvaluationError(Exception):
    """An expression has no value for this answer. The message is feedback for the answer's author."""


class _TooLongError(Exception):
    """An evaluation takes more steps than allowed."""


class _Functions(functions.Functions):
    """The standard's functions, and functions for arithmetic and text."""

    @functions.signature({"types": ["number"]}, {"types": ["number"]})
    def _func_add(self, left: float, right: float) -> float:
        return _number(float(left) + float(right))

    @functions.signature({"types": ["number"]}, {"types": ["number"]})
    def _func_subtract(self, left: float, right: float) -> float:
        return _number(float(left) - float(right))

    @functions.signature({"types": ["number"]}, {"types": ["number"]})
    def _func_multiply(self, left: float, right: float) -> float:
        return _number(float(left) * float(right))

    @functions.signature({"types": ["number"]}, {"types": ["number"]})
    def _func_divide(self, left: float, right: float) -> float:
        return _number(float(left) / float(right))

    @functions.signature({"types": ["string"]})
    def _func_lower(self, text: str) -> str:
        return text.lower()

    @functions.signature({"types": ["string"]})
    def _func_words(self, text: str) -> int:
        return len(text.split())


_KNOWN_FUNCTIONS = frozenset(_Functions.FUNCTION_TABLE) - {"to_string"}
_FUNCTIONS = _Functions()


class _BoundedInterpreter(visitor.TreeInterpreter):
    """Interpreter with a limit on its steps. An operation on a whole list or text takes as many as its length."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._steps_left = steps

    def _charge(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise _TooLongError

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        self._charge(1)
        return super().visit(node, *args, **kwargs)

    def visit_function_expression(self, node: Any, value: Any) -> Any:
        arguments = [self.visit(child, value) for child in node["children"]]
        sizes = [len(argument) if isinstance(argument, str | list | dict) else 1 for argument in arguments]
        self._charge(math.prod(sizes) if node["value"] == "join" else sum(sizes))
        return _FUNCTIONS.call_function(node["value"], arguments)

    def visit_flatten(self, node: Any, value: Any) -> Any:
        elements = super().visit_flatten(node, value)
        self._charge(len(elements or ()))
        return elements


@lru_cache(maxsize=1024)
def parse_expression(text: str, *, at_root: bool = True) -> Mapping[str, Any]:
    """Parse and check an expression. With ``at_root`` it must start at ``answer`` or ``problem``; otherwise it is
    evaluated on one element of a list.

    Raises:
        ConstraintError: the syntax or the start is wrong, a function is unknown, or the expression is too large.
    """
    if len(text) > MAX_CHARS:
        raise ConstraintError(
            f"expression {text[:60]!r}... has {len(text)} characters; at most {MAX_CHARS} are allowed"
        )
    try:
        tree: Mapping[str, Any] = jmespath.compile(text).parsed
        nodes = list(_nodes(tree))
    except (exceptions.JMESPathError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else "nested too deeply"
        raise ConstraintError(f"expression {text!r} is not JMESPath: {reason}") from error
    _check_functions(text, nodes)
    _check_multi_selects(text, nodes)
    if at_root:
        _check_roots(text, tree)
    return tree


class RuleInput:
    """Document for expressions, with one limit on the steps of all their evaluations."""

    def __init__(self, value: Mapping[str, Any], *, steps: int = MAX_STEPS) -> None:
        self._value = value
        self._interpreter = _BoundedInterpreter(steps)

    def value_of(self, text: str) -> Any:
        """Value of an expression on the whole document; None if it is missing.

        Raises:
            EvaluationError: an argument has a wrong type, a divisor is zero, or there are too many steps.
            ConstraintError: the expression is wrong (see ``parse_expression``).
        """
        return self._visit(text, parse_expression(text), self._value)

    def value_in(self, element: Any, text: str) -> Any:
        """Value of an expression on one element. Raises the errors of ``value_of``."""
        return self._visit(text, parse_expression(text, at_root=False), element)

    def _visit(self, text: str, tree: Mapping[str, Any], value: Any) -> Any:
        try:
            return self._interpreter.visit(tree, value)
        except _TooLongError as error:
            raise EvaluationError(f"{text} takes too many steps; the answer is too large") from error
        except _EVALUATION_ERRORS as error:
            raise EvaluationError(f"{text} cannot be computed: {_reason(error)}") from error


def problem_fields(text: str) -> set[str]:
    """Fields of ``problem`` named in an expression on the whole document.

    Raises:
        ConstraintError: the expression is wrong.
    """
    return {
        node["children"][1]["value"]
        for node in _root_nodes(parse_expression(text))
        if node["type"] == "subexpression"
        and (node["children"][0]["type"], node["children"][0].get("value")) == ("field", "problem")
        and node["children"][1]["type"] == "field"
    }


def reads_answer(text: str) -> bool:
    """True if an expression on the whole document uses ``answer``."""
    nodes = list(_root_nodes(parse_expression(text)))
    return any(node["type"] == "current" or (node["type"], node.get("value")) == ("field", "answer") for node in nodes)


def _number(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("the result is not a finite number")
    return value


def _reason(error: Exception) -> str:
    if isinstance(error, exceptions.JMESPathTypeError):
        expected = " or ".join(error.expected_types)
        return f"{error.function_name}() needs {expected}, got {error.actual_type} {error.current_value!r:.60}"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error)[:200] or type(error).__name__


def _nodes(tree: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(tree, Mapping):
        yield tree
        for child in tree["children"]:
            yield from _nodes(child)


def _check_functions(text: str, nodes: list[Mapping[str, Any]]) -> None:
    for node in nodes:
        if node["type"] != "function_expression":
            continue
        name = node["value"]
        if name not in _KNOWN_FUNCTIONS:
            raise ConstraintError(
                f"expression {text!r}: unknown function {name!r}; known: {', '.join(sorted(_KNOWN_FUNCTIONS))}"
            )
        signature = _Functions.FUNCTION_TABLE[name]["signature"]
        least, variadic = len(signature), bool(signature and signature[-1].get("variadic"))
        num_arguments = len(node["children"])
        if num_arguments < least or (num_arguments > least and not variadic):
            raise ConstraintError(f"expression {text!r}: {name}() takes {least} argument(s), got {num_arguments}")


def _check_multi_selects(text: str, nodes: list[Mapping[str, Any]]) -> None:
    multi_selects = [node for node in nodes if node["type"] in ("multi_select_list", "multi_select_dict")]
    if len(multi_selects) > MAX_MULTI_SELECTS or any(
        len(node["children"]) > MAX_MULTI_SELECT_ITEMS for node in multi_selects
    ):
        raise ConstraintError(
            f"expression {text!r}: at most {MAX_MULTI_SELECTS} multi-selects of at most {MAX_MULTI_SELECT_ITEMS} "
            "items; declare several constraints instead"
        )


def _check_roots(text: str, tree: Mapping[str, Any]) -> None:
    unknown = sorted({node["value"] for node in _root_nodes(tree) if node["type"] == "field"} - set(ROOTS))
    if unknown:
        raise ConstraintError(
            f"expression {text!r} starts at {unknown[0]!r}; expressions start at {' or '.join(ROOTS)}; "
            f"write a text in single quotes: {chr(34)}'{unknown[0]}'{chr(34)}"
        )


def _root_nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Nodes that are evaluated on the whole document, not on a part of it."""
    yield node
    if node["type"] == "expref":
        return
    children = node["children"][:1] if node["type"] in _FIRST_CHILD_AT_ROOT else node["children"]
    for child in children:
        if isinstance(child, Mapping):
            yield from _root_nodes(child)


def key_of(value: Any) -> str:
    """Key of a JSON value. Equal values have equal keys: 1 equals 1.0, but not true.

    Raises:
        EvaluationError: the value is not JSON (NaN), or is nested too deeply.
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
        EvaluationError: the value is infinite, NaN, or too large for a float.
    """
    try:
        number = float(value)
    except OverflowError as error:
        raise EvaluationError("a number is too large to compare") from error
    if not math.isfinite(number):
        raise EvaluationError(f"{number} is not a number to compare")
    return number


def kind_of(value: Any) -> str:
    """Name of a value's type, for messages to people and models."""
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
