"""Extraction of the program from a completion, and a normal form of programs.

Every search is a single pass over the lines, so its time is linear in the length of the text.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*([^\s`{]{0,20})[^`]{0,200}$")
_TAB = 4
"""Columns between tab stops, as in Markdown."""
_PYTHON = {"python", "python3", "py", "py3", "python2"}
_UNTAGGED = {"", "text", "plaintext", "code"}
_CODE_START = re.compile(r"(?:import |from \w|def \w|class \w|@\w|#!)")
_MAX_COMPILED = 200_000
"""Maximum length in characters of a text that is parsed as Python."""
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_THINKING_END = "</think>"


@dataclass(frozen=True, slots=True)
class _Block:
    language: str
    code: str
    is_closed: bool


def find_program(text: str, *, function: str | None = None, head: str = "") -> str | None:
    """The submitted program of a completion, or None.

    The last complete fenced block of Python counts, if possible one that defines ``function``; without a block marked
    as Python, the last unmarked one. A truncated block counts if there is no complete one. A text that compiles as a
    whole is the program, even with fences, which are then in its strings and comments.

    A text without fences is the program if it continues ``head``, the beginning of the program in the prompt up to the
    body of the function: completion models write the indented body alone. Otherwise the program is the text from its
    first line of code on, if that compiles.
    """
    text = text.rpartition(_THINKING_END)[2]
    begins_with_fence = _FENCE.match(text.lstrip().partition("\n")[0])  # "~~~python" is also Python
    if not begins_with_fence and (program := _program(text)) is not None:
        return program
    blocks = [block for block in _blocks(text) if block.code.strip()]
    for is_closed in (True, False):
        for languages in (_PYTHON, _UNTAGGED):
            fitting = [block for block in blocks if block.is_closed is is_closed and block.language in languages]
            if fitting:
                return _clean(_chosen(fitting, function).code)
    return None if blocks else _continuation(text, head, function) or _bare_program(text)


def _continuation(text: str, head: str, function: str | None) -> str | None:
    """The text without surrounding empty lines, if it is indented and compiles below the head."""
    code = _clean("\n".join(text.splitlines()))
    if not head or not code[:1].isspace() or (function and defines(code, function)):
        return None
    return code if _parsed(head + code) is not None else None


def defines(code: str, function: str) -> bool:
    """True if the program defines the function itself, so that it does not continue a head."""
    return re.search(rf"^def {re.escape(function)}\b", code, re.MULTILINE) is not None


def _chosen(blocks: list[_Block], function: str | None) -> _Block:
    if function is not None:
        definition = re.compile(rf"^[ \t]*(?:async )?def {re.escape(function)}\b", re.MULTILINE)
        defining = [block for block in blocks if definition.search(block.code)]
        blocks = defining or blocks
    return blocks[-1]


def _blocks(text: str) -> Iterator[_Block]:
    """Fenced blocks at any depth, for example in lists.

    A fence four or more columns deeper than the opening one does not end a block, because docstrings have fences too. A
    fence that opens Python inside a block shows that the block's own end is missing.
    """
    fence, language, depth = "", "", 0
    lines: list[str] = []
    for line in text.splitlines():
        mark = _FENCE.match(line) if len(line) < 300 else None
        is_own = mark is not None and mark[1].startswith(fence) and (not fence or _indentation(line) < depth + 4)
        if mark and is_own and (not fence or mark[2].lower() in _PYTHON):
            if fence:
                yield _Block(language, _outdented(lines, depth), is_closed=False)
            fence, language, depth, lines = mark[1], mark[2].lower(), _indentation(line), []
        elif fence and mark and is_own and line.strip() == mark[1]:
            yield _Block(language, _outdented(lines, depth), is_closed=True)
            fence = ""
        elif fence:
            lines.append(line)
    if fence:
        yield _Block(language, _outdented(lines, depth), is_closed=False)


def _outdented(lines: list[str], depth: int) -> str:
    """Remove the fence's indentation from each line, but at most that of the first line of code: if only the fence is
    indented, the program stays as it is."""
    first = next((line for line in lines if line.strip()), "")
    columns = min(depth, _indentation(first))
    return "\n".join(_without(columns, line) for line in lines)


def _indentation(line: str) -> int:
    space = line[: len(line) - len(line.lstrip(" \t"))]
    return len(space.expandtabs(_TAB))


def _without(columns: int, line: str) -> str:
    """The line without its first ``columns`` columns, as far as they are whitespace. A tab cut in two leaves spaces."""
    column = index = 0
    while column < columns and line[index : index + 1] in {" ", "\t"}:
        column += 1 if line[index] == " " else _TAB - column % _TAB
        index += 1
    return " " * (column - columns) + line[index:]


def _bare_program(text: str) -> str | None:
    lines = text.splitlines()
    start = next((index for index, line in enumerate(lines) if _CODE_START.match(line)), None)
    return None if start is None else _program("\n".join(lines[start:]))


def _program(text: str) -> str | None:
    """The stripped text, if it compiles and does something."""
    code = _clean("\n".join(text.splitlines()))
    tree = _parsed(code)
    return code if tree is not None and any(_does_something(statement) for statement in tree.body) else None


def _does_something(statement: ast.stmt) -> bool:
    """True unless it is an expression without a call: words such as "yes" or "a, b" are expressions, not programs."""
    return not isinstance(statement, ast.Expr) or any(isinstance(node, ast.Call) for node in ast.walk(statement))


def _clean(code: str) -> str:
    """The code without empty lines at either end, and without whitespace at the end of the last line."""
    return code.strip("\n\r").rstrip() if code.strip() else ""


def _parsed(code: str) -> ast.Module | None:
    if len(code) > _MAX_COMPILED:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None


def fenced(code: str, language: str = "python") -> str:
    """The program as a fenced block that ``find_program`` can extract, even if it contains fences itself."""
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{code}\n{fence}"


def normal_form(code: str) -> str:
    """Normal form, equal for programs that differ only in comments, docstrings, spacing or quotes."""
    tree = _parsed(code)
    if tree is None:
        return code
    try:
        for node in ast.walk(tree):
            if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:]
        return ast.dump(tree)
    except RecursionError:
        return code
