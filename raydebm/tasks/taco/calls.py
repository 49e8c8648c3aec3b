"""Public tests, and their extraction from example calls in a docstring or statement: ``>>> f(2)`` with its result, or
``f(2) == 4``.

Arguments and results must be literals (``ast.literal_eval``). A call whose result cannot be parsed still gives an
input.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

MAX_CALL_CHARS = 2_000
"""Length limit of a call with its arguments, and of a result."""
MAX_CALLS = 50
"""Maximum number of occurrences of the function's name to examine."""
_MAX_CLOSINGS = 60
"""Maximum number of closing parentheses to try as a call's end."""

_QUOTES = ('"""', "'''")
_RELATION = re.compile(
    r"\s*(?:#\s*(?:=>|==>|->|➞|→|=|returns?|should return|should be)?|==>|=>|==|=|->|-->|➞|→|returns?|should return)\s*"
)
_EQUALS = re.compile(r"\s*=(?![=>])")
_WORDS = {"true": "True", "false": "False", "null": "None"}
_OTHERS = tuple("'\"b[{sN")
"""First characters of normalised literals other than tuples and numbers."""
_BLOCK_LINES = 10
"""Maximum number of lines of a result in an interactive session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicTest:
    """One input, and its expected result if known."""

    function: str | None
    """Called function. None for a program that reads stdin."""
    given: str
    """Stdin, or the arguments as the literal of a tuple."""
    expected: str | None
    """Stdout, or the literal of the returned value. None if unknown: the input alone still distinguishes programs."""

    @property
    def call(self) -> str:
        return f"{self.function}({self.given.removeprefix('(').removesuffix(')').removesuffix(',')})"


def calls_in(text: str, function: str) -> Iterator[PublicTest]:
    """Example calls of ``function``, repeated ones included: of its docstring if the text defines it, else of the whole
    text."""
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
        if has_definition and _EQUALS.match(shown, end):  # a line of the definition f(n) = ..., not an example
            continue
        result = _result_after(shown, end, is_prompted=shown[: occurrence.start()].endswith(">>> "))
        if arguments != "()" or result is not None:  # a name with () in a sentence is not a call
            yield PublicTest(function=function, given=arguments, expected=result)


def asserted_call(source: str) -> PublicTest | None:
    """Call and result of ``assert function(arguments) == result`` (or ``is``); None for any other text."""
    tree = _syntax(source.strip(), "exec") if len(source) <= 2 * MAX_CALL_CHARS else None
    if not isinstance(tree, ast.Module) or len(tree.body) != 1 or not isinstance(tree.body[0], ast.Assert):
        return None
    test = tree.body[0].test
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq | ast.Is):
        return None
    arguments, result = _arguments(test.left), _value(test.comparators[0])
    if arguments is None or result is None:
        return None
    return PublicTest(function=_name(test.left), given=arguments, expected=result)


def _docstring(text: str, function: str) -> str:
    """First triple-quoted string after ``def function``; without one, the whole text."""
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


def _call_at(text: str, start: int, opened: int) -> tuple[int, str | None]:
    """(end of the call, its arguments, or None if they are not literals)."""
    end = opened
    for _ in range(_MAX_CLOSINGS):
        end = text.find(")", end, start + MAX_CALL_CHARS) + 1
        if end == 0:
            break
        tree = _syntax(text[start:end], "eval")
        if isinstance(tree, ast.Expression):
            return end, _arguments(tree.body)
    return opened, None


def _arguments(node: ast.AST) -> str | None:
    """Positional literal arguments of a call by name, as the literal of a tuple."""
    if not isinstance(node, ast.Call) or node.keywords or not _name(node):
        return None
    return _value(ast.Tuple(elts=node.args, ctx=ast.Load()))


def _name(node: ast.AST) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _result_after(text: str, end: int, *, is_prompted: bool) -> str | None:
    """Literal of the result after a call, or None."""
    rest, _, below = text[end:].partition("\n")
    relation = _RELATION.match(rest)
    if relation is not None and rest[relation.end() :].strip():
        return _literal_in(rest[relation.end() :])
    return _literal_below(below) if is_prompted and not rest.strip() else None


def _literal_below(below: str) -> str | None:
    """Result as an interactive session prints it. No line before the next prompt means None."""
    lines: list[str] = []
    for line in below.split("\n")[:_BLOCK_LINES]:
        if not line.strip() or line.lstrip().startswith(">>>"):
            break
        lines.append(line.strip())
    if not lines:
        return "None" if below.lstrip().startswith(">>>") else None
    return _literal("\n".join(lines)) or _literal_in(lines[0])


def _literal_in(rest: str) -> str | None:
    """Literal at the start of a line, which a comment or punctuation may follow."""
    texts = (rest.strip(), re.split(r"\s(?:#|//|\(|--)", rest, maxsplit=1)[0].strip())
    literals = (_literal(text.removesuffix(ending)) for text in texts for ending in ("", ".", ";", ","))
    return next(filter(None, literals), None)


def _literal(text: str) -> str | None:
    text = text.strip()
    if not text or len(text) > MAX_CALL_CHARS:
        return None
    value = _WORDS.get(text) or _value(text)
    # ("Venus") is a string in Python, but the author may mean a tuple of one.
    is_doubtful = text.startswith("(") and text.endswith(")") and value is not None and value.startswith(_OTHERS)
    return None if is_doubtful else value


def _value(source: str | ast.expr) -> str | None:
    """Literal as Python prints its value; None for a source that is not a literal."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            literal = repr(ast.literal_eval(source))
            ast.literal_eval(literal)  # fails for infinity and the ellipsis, whose text is not a literal
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return literal


def _syntax(source: str, mode: str) -> ast.AST | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source, mode=mode)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
