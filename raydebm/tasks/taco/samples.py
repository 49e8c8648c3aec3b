"""Sample inputs and outputs in the statement of a problem whose programs read stdin.

Only pairs under a heading count: ``Sample Input``, ``Example Input``, or ``Input`` below a heading ``Example``. The
plain headings ``Input`` and ``Output`` further up describe the format.
"""

import re
from collections.abc import Iterator

MAX_SAMPLE_CHARS = 20_000
"""Length limit of an input or output; a longer one is left out."""

_NOT_LETTERS = re.compile(r"[^a-z]+")
_MAX_HEADING = 60
_EXAMPLES = frozenset(
    {"example", "examples", "sample", "samples", "sample test", "sample tests", "sample test cases", "for example"}
)
_MARKED_INPUT = frozenset({"sample input", "example input", "sample inputs", "input sample", "input example"})
_MARKED_OUTPUT = frozenset({"sample output", "example output", "sample outputs", "output sample", "output example"})
_ENDS = frozenset(
    {"note", "notes", "explanation", "explanations", "constraints", "scoring", "subtasks", "hint", "hints", "limits"}
    | {"sample explanation", "explanation of sample", "example explanation", "source", "time limit", "memory limit"}
    | {"input format", "output format", "warning", "see also", "subtask"}
)
_PROSE = re.compile(r"(?:[A-Za-z(][\w'$\\{}()-]*[,.:;]? ){4}")
"""Five words in a row: text after an output without its own heading explains it."""
_FENCE = re.compile(r"\s*(?:`{3,}|~{3,})\w*\s*$")
_BAR = re.compile(r"-{3,}\s*[A-Z][a-z ]{2,30}-{3,}")
"""A heading with text after it on the same line."""
_ANY_ANSWER = re.compile(
    r"\b(?:print|output|return|find|give|display|report)s?\b[^.?\n]{0,40}?\b(?:any of (?:them|these|those)"
    r"|any (?:one|such|valid|correct|possible|suitable|optimal|answer|solution|order)\b|in arbitrary order)"
    r"|\b(?:multiple|several|many|more than one) (?:possible |valid |correct |optimal |such |different )*"
    r"(?:answers?|solutions?|outputs?|ways)\b[^.?\n]{0,50}\bany\b",
    re.IGNORECASE,
)
"""Bounded repetitions only, for linear time."""


def samples_in(statement: str) -> Iterator[tuple[str, str]]:
    """Pairs of sample input and output, in the statement's order.

    Both end without a newline. Inputs without an output, or longer than ``MAX_SAMPLE_CHARS``, are left out.
    """
    kind, waiting = "", ""
    block: list[str] = []
    below_examples = False
    for line in [*statement.splitlines(), "Note"]:
        heading = _kind_of(line, below_examples)
        if not heading:
            block.append(line)
            continue
        text = _content(block)
        if kind == "input":
            waiting = text
        elif kind == "output" and waiting and text:
            if max(len(waiting), len(text)) <= MAX_SAMPLE_CHARS and not _PROSE.match(waiting):
                yield waiting, text
            waiting = ""
        below_examples = below_examples or heading == "examples"
        kind, block = heading, []


def allows_any_answer(statement: str) -> bool:
    """True if the statement says that an input may have several right outputs."""
    return _ANY_ANSWER.search(statement) is not None


def _kind_of(line: str, below_examples: bool) -> str:
    """``input``, ``output``, ``examples`` or ``end`` for a heading; empty for anything else."""
    if len(line) > _MAX_HEADING:
        return ""
    words = _NOT_LETTERS.sub(" ", line.lower()).strip()
    if words in _EXAMPLES:
        return "examples"
    if words in _MARKED_INPUT or (words == "input" and below_examples):
        return "input"
    if words in _MARKED_OUTPUT or (words == "output" and below_examples):
        return "output"
    if words in _ENDS or words in ("input", "output") or words.startswith(("explanation", "example case")):
        return "end"
    return ""


def _content(block: list[str]) -> str:
    """The lines without fences, without surrounding blank lines, and up to prose after a blank line."""
    lines = [line for line in block if not _FENCE.match(line)]
    text: list[str] = []
    for line in lines:
        if _BAR.match(line) or (text and not text[-1].strip() and _PROSE.match(line.strip() + " ")):
            break
        if text or line.strip():
            text.append(line)
    return "\n".join(text).rstrip()
