"""Example calls of a function in a docstring or a statement: ``>>> f(2)`` with its result, or ``f(2) == 4``.

Only literal arguments and results are read (``ast.literal_eval``). A call whose result cannot be read is still an
input.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MAX_CALL_CHARS = 2_000
"""Length limit of a call with its arguments, and of a result."""
MAX_CALLS = 50
"""Maximum number of occurrences of the function's name to examine."""
_MAX_CLOSINGS = 60
"""Maximum number of closing parentheses to try as the end of a call."""

_QUOTES = ('"""', "'''")
_RELATION = re.compile(
    r"\s*(?:#\s*(?:=>|==>|->|➞|→|=|returns?|should return|should be)?|==>|=>|==|=|->|-->|➞|→|returns?|should return)\s*"
)
_EQUALS = re.compile(r"\s*=(?![=>])")
_WORDS = {"true": True, "false": False, "null": None}
_BLOCK_LINES = 10
"""Maximum number of lines of a result in an interactive session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleCall:
    """A call with literal arguments."""

    function: str
    arguments: tuple[Any, ...]
    has_result: bool
    result: Any = None
    """Result of the call; also None if the text has no readable one."""


def calls_in(text: str, function: str) -> Iterator[ExampleCall]:
    """Example calls of ``function``, in the order of the text: in its docstring if the text defines it, else in the
    whole text. Repeated calls are included."""
    shown = _docstring(text, function)
    has_definition = re.search(rf"(?<![\w.]){re.escape(function)}\(\s*[A-Za-z_]\w*\s*\)\s*=(?![=>])", shown)
    occurrences = re.finditer(rf"(?<![\w.]){re.escape(function)}\s?\(", shown)
    for number, occurrence in enumerate(occurrences):
        if number == MAX_CALLS:
            return
        if shown[: occurrence.start()].endswith("def "):
            continue
        end, arguments = _call_at(shown, occurrence.start(), occurrence.end())
        if arguments is None:
            continue
        if has_definition and _EQUALS.match(shown, end):  # one step of f(n) = ..., not a call and its result
            continue
        has_result, result = _result_after(shown, end, is_prompted=shown[: occurrence.start()].endswith(">>> "))
        if arguments or has_result:  # a name with () in a sentence is not a call
            yield ExampleCall(function=function, arguments=arguments, has_result=has_result, result=result)


def asserted_call(source: str) -> ExampleCall | None:
    """Call and result of ``assert function(arguments) == result``; None for any other text."""
    tree = _syntax(source.strip(), "exec") if len(source) <= 2 * MAX_CALL_CHARS else None
    if not isinstance(tree, ast.Module) or len(tree.body) != 1 or not isinstance(tree.body[0], ast.Assert):
        return None
    test = tree.body[0].test
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq | ast.Is):
        return None
    arguments = _arguments(test.left)
    has_result, result = _value(test.comparators[0])
    if arguments is None or not has_result:
        return None
    return ExampleCall(function=_name(test.left), arguments=arguments, has_result=True, result=result)


def _docstring(text: str, function: str) -> str:
    """The first string after ``def function``; the whole text if it does not define the function."""
    definition = re.search(rf"^[ \t]*def {re.escape(function)}\b[^\n]*$", text, re.MULTILINE)
    if definition is None:
        return text
    below = text[definition.end() :]
    starts = [(place, quote) for quote in _QUOTES if (place := below.find(quote)) >= 0]
    if not starts:
        return text
    place, quote = min(starts)
    content, _, _ = below[place + 3 :].partition(quote)
    return content


def _call_at(text: str, start: int, opened: int) -> tuple[int, tuple[Any, ...] | None]:
    """(end of the call, its arguments); None for arguments that are not literals."""
    end = opened
    for _ in range(_MAX_CLOSINGS):
        end = text.find(")", end, start + MAX_CALL_CHARS) + 1
        if end == 0:
            break
        tree = _syntax(text[start:end], "eval")
        if isinstance(tree, ast.Expression):
            return end, _arguments(tree.body)
    return opened, None


def _arguments(node: ast.AST) -> tuple[Any, ...] | None:
    """Positional literal arguments of a call by name."""
    if not isinstance(node, ast.Call) or node.keywords or not _name(node):
        return None
    values = [_value(argument) for argument in node.args]
    return tuple(value for _, value in values) if all(is_read for is_read, _ in values) else None


def _name(node: ast.AST) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _result_after(text: str, end: int, *, is_prompted: bool) -> tuple[bool, Any]:
    """(True, result) after a call, or (False, None)."""
    rest, _, below = text[end:].partition("\n")
    relation = _RELATION.match(rest)
    if relation is not None and rest[relation.end() :].strip():
        return _literal_in(rest[relation.end() :])
    if rest.strip() or not is_prompted:
        return False, None
    return _literal_below(below)


def _literal_below(below: str) -> tuple[bool, Any]:
    """Result as printed by an interactive session, over one or more lines; no line at all means None."""
    lines: list[str] = []
    for line in below.split("\n")[:_BLOCK_LINES]:
        if not line.strip() or line.lstrip().startswith(">>>"):
            break
        lines.append(line.strip())
    if not lines:
        return below.lstrip().startswith(">>>"), None
    whole = _literal("\n".join(lines))
    return whole if whole[0] else _literal_in(lines[0])


def _literal_in(rest: str) -> tuple[bool, Any]:
    """Literal at the start of a line, without a comment or a full stop after it."""
    for text in (rest, re.split(r"\s(?:#|//|\(|--)", rest, maxsplit=1)[0]):
        text = text.strip()
        for ending in ("", ".", ";", ","):
            is_read, value = _literal(text.removesuffix(ending))
            if is_read:
                return True, value
    return False, None


def _literal(text: str) -> tuple[bool, Any]:
    text = text.strip()
    if not text or len(text) > MAX_CALL_CHARS:
        return False, None
    if text in _WORDS:
        return True, _WORDS[text]
    is_read, value = _value(text)
    # ("Venus") is a string in Python, but a writer may mean a tuple of one
    is_doubtful = text.startswith("(") and text.endswith(")") and not isinstance(value, tuple | complex | int | float)
    return (False, None) if is_doubtful else (is_read, value)


def _value(source: str | ast.expr) -> tuple[bool, Any]:
    """(True, value) of a literal, or (False, None)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = ast.literal_eval(source)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False, None
    return (False, None) if value is Ellipsis else (True, value)


def _syntax(source: str, mode: str) -> ast.AST | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source, mode=mode)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
