r"""Removal of style from texts, one feature at a time (paper, appendix: headers, LaTeX, input and output, comments).

In:   any text.
Out:  the same text without one kind of formatting; the words, numbers and the logic of code are unchanged.

The answer's mark is kept: ``#### 18`` is an answer and not a heading, ``\boxed{18}`` keeps its number.
"""

import io
import re
import tokenize
from collections.abc import Callable, Mapping
from functools import wraps
from textwrap import dedent
from types import MappingProxyType

Rewrite = Callable[[str], str]

_FENCE = re.compile(
    r"^(?P<indent>[ \t]{0,40})(?P<mark>`{3,}|~{3,})[ \t]*(?P<language>[\w+#.-]{0,30})[^\n]*\n"
    r"(?P<code>.*?)(?:^(?P=indent)(?P=mark)[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_FENCE_LINE = re.compile(r"^[ \t]{0,40}(?:`{3,}|~{3,})[^\n]*(?:\n|\Z)", re.MULTILINE)
_PROSE = frozenset({"json", "text", "txt", "plaintext", "markdown", "md", "latex", "tex"})
"""Languages of fenced blocks without a program. Their content is treated like the surrounding text."""

_HEADING = re.compile(r"^[ \t]{0,3}#{1,6}[ \t]+(?![^\n]{0,12}\d[^\n]{0,40}$)", re.MULTILINE)
_NUMBERED_HEADING = re.compile(
    r"^[ \t]{0,3}#{1,6}[ \t]+(?=(?:step\b|\d{1,3}[.)][ \t]+\D))", re.MULTILINE | re.IGNORECASE
)
_RULE = re.compile(r"^[ \t]{0,3}(?:-{3,}|\*{3,}|_{3,}|={3,})[ \t]*\n?", re.MULTILINE)
_BOLD = re.compile(r"(\*\*)(?=\S)([^\n]{1,300}?)(?<=\S)\1")
_BULLET = re.compile(r"^([ \t]{0,12})(?:[-*+•]|\d{1,3}[.)])[ \t]+", re.MULTILINE)

_DISPLAY = re.compile(r"\\[\[\]()]|\$\$|\$(?!\d[\d,.]{0,15}(?:\s|$))")
_FRACTION = re.compile(r"\\{1,2}[dtc]?frac\s?\{([^{}\n]{1,80})\}\s?\{([^{}\n]{1,80})\}")
_WRAPPER = re.compile(r"\\{1,2}(?:text|mathrm|mathbf|mathit|operatorname|boxed|textbf)\s?\{([^{}\n]{0,200})\}")
_SPACING = re.compile(r"\\(?:left|right|big|Big|quad|qquad|displaystyle|limits)\b|\\[,;:! ]|\\\\")
_SYMBOLS = (
    (re.compile(r"\\{1,2}(?:times|cdot)\b"), "*"),
    (re.compile(r"\\{1,2}div\b"), "/"),
    (re.compile(r"\\{1,2}(?:leq|le)\b"), "<="),
    (re.compile(r"\\{1,2}(?:geq|ge)\b"), ">="),
    (re.compile(r"\\{1,2}neq?\b"), "!="),
    (re.compile(r"\\{1,2}approx\b"), "~"),
    (re.compile(r"\\{1,2}pm\b"), "+-"),
    (re.compile(r"\\([%$&#_{}])"), r"\1"),
)

_READLINE = re.compile(r"\b(?:sys\.)?stdin\.readline\(\)")
_ALIAS = re.compile(
    r"^[ \t]*(?:input|readline|inp)\s*=\s*(?:lambda\s*:\s*)?(?:sys\.)?stdin\.(?:buffer\.)?readline[^\n]*\n?",
    re.MULTILINE,
)
_IMPORT_SYS = re.compile(
    r"^[ \t]*(?:import[ \t]+sys|from[ \t]+sys[ \t]+import[ \t]+[^\n]{1,80})[ \t]*(?:\n|\Z)", re.MULTILINE
)
_WRITE = re.compile(
    r"\b(?:sys\.)?stdout\.write\(([^\n]{1,200}?)(?:[ ]?\+[ ]?(?:\"\\n\"|'\\n'))?\)(?=[ \t]*(?:#|$))", re.MULTILINE
)
_STRIP = re.compile(r"\binput\(\)\.(?:r?strip)\(\)")
_GUARD = re.compile(
    r"^if[ \t]+__name__[ \t]*==[ \t]*[\"']__main__[\"'][ \t]*:[ \t]*\n((?:[ \t]+[^\n]*(?:\n|\Z)|\n)*)", re.MULTILINE
)

_HASH_COMMENT = re.compile(r"(?:(?<=\s)|^)#(?!#)(?![ \t]*include\b)[^\n]*", re.MULTILINE)
_SLASH_COMMENT = re.compile(r"(?:(?<=\s)|^)//[^\n]*", re.MULTILINE)
_BLOCK_COMMENT = re.compile(r"/\*.{0,4000}?\*/", re.DOTALL)
_DOCSTRING = re.compile(r"^[ \t]*(\"\"\"|''').{0,4000}?\1[ \t]*\n?", re.MULTILINE | re.DOTALL)
_NOT_PYTHON = re.compile(r"^[ \t]*(?:#[ \t]*include\b|//)|;[ \t]*$", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+\n")
_CODE_SIGNS = re.compile(
    r"^[ \t]*(?:def |class |import |from \w+ import |for .+:|while .+:|if .+:|return\b|print\()", re.MULTILINE
)


def _pieces(text: str) -> list[tuple[str, str | None, str]]:
    """Split the text at its fenced programs into (prose, None, "") and (opening fence, program, closing fence).

    The parts concatenate to the text. An unclosed block extends to the end of the text, and a text that looks like a
    program without fences is one program.
    """
    fenced = [match for match in _FENCE.finditer(text) if match.group("language").lower() not in _PROSE]
    if not fenced:
        return [("", text, "") if _looks_like_code(text) else (text, None, "")]
    pieces: list[tuple[str, str | None, str]] = []
    start = 0
    for match in fenced:
        before, after = text[match.start() : match.start("code")], text[match.end("code") : match.end()]
        pieces += [(text[start : match.start()], None, ""), (before, match.group("code"), after)]
        start = match.end()
    return [*pieces, (text[start:], None, "")]


def _looks_like_code(text: str) -> bool:
    """Whether a text without fences is a program: a large share of its lines begins like Python."""
    lines = [line for line in text.splitlines() if line.strip()]
    return bool(lines) and len(_CODE_SIGNS.findall(text)) >= max(2, len(lines) // 8)


def _outside_code(rewrite: Rewrite) -> Rewrite:
    """Decorator: rewrite the prose of a text, not its programs."""

    @wraps(rewrite)
    def rewritten(text: str) -> str:
        pieces = _pieces(text)
        return "".join(rewrite(before) if code is None else before + code + after for before, code, after in pieces)

    return rewritten


def _inside_code(rewrite: Rewrite) -> Rewrite:
    """Decorator: rewrite the programs of a text, not its prose."""

    @wraps(rewrite)
    def rewritten(text: str) -> str:
        parts = []
        for before, code, after in _pieces(text):
            changed = "" if code is None else rewrite(code)
            # A closing fence needs a line of its own.
            parts += [before, changed, "\n" if after and not changed.endswith("\n") else "", after]
        return "".join(parts)

    return rewritten


@_outside_code
def without_headers(text: str) -> str:
    """Remove headings, rules, bold marks, bullets and fences around JSON, outside code. The words are kept."""
    text = _BULLET.sub(r"\1", _BOLD.sub(r"\2", _RULE.sub("", _FENCE_LINE.sub("", text))))
    return _HEADING.sub("", _NUMBERED_HEADING.sub("", text))


@_outside_code
def without_latex(text: str) -> str:
    r"""Replace formulas with plain characters, outside code: ``\frac{1}{2}`` is (1)/(2), ``\boxed{18}`` is 18."""
    for _ in range(4):  # nested braces, from the inside out
        simpler = _WRAPPER.sub(r"\1", _FRACTION.sub(r"(\1)/(\2)", text))
        if simpler == text:
            break
        text = simpler
    for pattern, plain in _SYMBOLS:
        text = pattern.sub(plain, text)
    return _DISPLAY.sub("", _SPACING.sub(" ", text))


@_inside_code
def with_plain_io(code: str) -> str:
    """Normalise input and output of Python programs: ``input()``, ``print()``, no main guard."""
    code = _READLINE.sub("input()", _ALIAS.sub("", code))
    code = _STRIP.sub("input()", _WRITE.sub(r"print(\1)", code))
    if "sys." not in _IMPORT_SYS.sub("", code):
        code = _IMPORT_SYS.sub("", code)
    return _GUARD.sub(lambda match: dedent(match.group(1)), code)


@_inside_code
def without_comments(code: str) -> str:
    """Remove comments and docstrings from code; ``#``, ``//`` and ``/* */`` comments if it is not Python."""
    bare = _DOCSTRING.sub("", code)
    uncommented = None if _NOT_PYTHON.search(bare) else _python_without_comments(bare)
    if uncommented is None:
        uncommented = _SLASH_COMMENT.sub("", _BLOCK_COMMENT.sub("", _HASH_COMMENT.sub("", bare)))
    trimmed = "\n".join(line.rstrip() for line in uncommented.split("\n"))
    return _BLANK_LINES.sub("\n\n", trimmed)


def _python_without_comments(code: str) -> str | None:
    """Code without comments, by Python's tokenizer, which handles a # inside a string. None if it cannot read the
    code."""
    lines = code.splitlines(keepends=True)
    try:
        comments = [
            token for token in tokenize.generate_tokens(io.StringIO(code).readline) if token.type == tokenize.COMMENT
        ]
    except (tokenize.TokenError, SyntaxError, ValueError):
        return None
    for token in reversed(comments):
        row, column = token.start
        line = lines[row - 1]
        lines[row - 1] = line[:column] + line[column + len(token.string) :]
    return "".join(lines)


STYLES: Mapping[str, Rewrite] = MappingProxyType(
    {"headers": without_headers, "latex": without_latex, "io": with_plain_io, "comments": without_comments}
)
"""Features that the ablation removes, in the paper's order."""


def without(text: str, names: tuple[str, ...]) -> str:
    for name in names:
        text = STYLES[name](text)
    return text


def code_only(text: str) -> str | None:
    """Code of a text: its fenced blocks, or the whole text if it is only code. None without code."""
    blocks = [code for _, code, _ in _pieces(text) if code is not None]
    if not blocks:
        return None
    return blocks[0] if blocks == [text] else "\n".join(block.strip("\n") for block in blocks)


def explanation_only(text: str) -> str | None:
    """Text outside the code. None if it is empty."""
    rest = "".join(before for before, code, _ in _pieces(text) if code is None).strip()
    return rest or None
