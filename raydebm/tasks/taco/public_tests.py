"""Public tests of a problem, which generators may see.

Their sources are the examples in the statement (samples and example calls), and ``public_tests`` in the problem's data,
from a user or a data set. Hidden tests are gold and never used here.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

from raydebm.errors import TaskDataError
from raydebm.identity import canonical_json
from raydebm.records import Problem
from raydebm.tasks.taco.calls import PublicTest, asserted_call, calls_in
from raydebm.tasks.taco.extraction import fenced

MAX_TESTS = 10
"""Maximum number of tests to run per problem."""
FIELD = "public_tests"

_FORMS = '{"input": text, "output": text} for a program that reads stdin, "assert f(arguments) == value" for a function'


def public_tests(problem: Problem) -> tuple[PublicTest, ...]:
    """At most ``MAX_TESTS`` different tests: those of the problem's data, then those of the statement."""
    given = canonical_json(problem.data.get(FIELD) or [])
    return _public_tests(problem.prompt, problem.data.get("function"), given)


@lru_cache(maxsize=1024)
def _public_tests(prompt: str, function: str | None, given: str) -> tuple[PublicTest, ...]:
    tests = given_tests(json.loads(given), function)
    called = function or next((test.function for test in tests), None)
    first: dict[tuple[str | None, str], PublicTest] = {}
    for test in (*tests, *_stated_tests(prompt, called)):
        first.setdefault((test.function, test.given), test)
    return tuple(islice(first.values(), MAX_TESTS))


def given_tests(items: Any, function: str | None) -> list[PublicTest]:
    """Parse the tests of a problem's data.

    Args:
        items: a list of ``{"input": text, "output": text}`` for programs that read stdin, where ``output`` is
            optional, or of ``"assert f(2) == 4"`` for functions.
        function: requested function. None if the problem does not name it: the first assertion then does, and without
            assertions programs read stdin.

    Raises:
        TaskDataError: another form, or tests of both kinds; the message has the item and the valid forms.
    """
    if not isinstance(function, str | None):
        raise TaskDataError(f"function must be a name, or null for a program that reads stdin; got {_kind(function)}")
    if not isinstance(items, list):
        raise TaskDataError(f"{FIELD} must be a list of tests, each {_FORMS}; got {_kind(items)}")
    tests: list[PublicTest] = []
    for number, entry in enumerate(items, start=1):
        test = asserted_call(entry) if isinstance(entry, str) else _test_of_fields(entry)
        called = function or (tests[0].function if tests else None)
        if test is None or ((tests or function) and (test.function is None) is not (called is None)):
            raise TaskDataError(
                f"{FIELD}: test {number} must be {_FORMS}, all of one kind; got {json.dumps(entry)[:200]}"
            )
        tests.append(test)
    return tests


def shown_tests(items: Any, function: str | None) -> str:
    """Text of the given tests for a prompt; empty without tests."""
    tests = given_tests(items, function)[:MAX_TESTS]
    parts = [
        f"Sample input:\n{fenced(test.given.rstrip(), 'text')}\nSample output:\n{fenced(test.expected, 'text')}"
        for test in tests
        if test.function is None and test.expected is not None
    ]
    assertions = [
        f"assert {test.call} == {test.expected}"
        for test in tests
        if test.function is not None and test.expected is not None
    ]
    if assertions:
        parts.append("Your code should pass these tests:\n" + fenced("\n".join(assertions)))
    return "\n\n".join(parts)


def _test_of_fields(entry: Any) -> PublicTest | None:
    if not isinstance(entry, Mapping) or "input" not in entry or entry.keys() - {"input", "output"}:
        return None
    given, expected = entry["input"], entry.get("output")
    if not isinstance(given, str) or not isinstance(expected, str | None):
        return None
    return PublicTest(function=None, given=_lines(given), expected=expected)


def _stated_tests(prompt: str, function: str | None) -> Iterator[PublicTest]:
    if function is None:
        is_one_of_many = allows_any_answer(prompt)
        for given, expected in samples_in(prompt):
            yield PublicTest(function=None, given=_lines(given), expected=None if is_one_of_many else expected)
    else:
        yield from calls_in(prompt, function)


def _lines(text: str) -> str:
    """The text as stdin, which ends with one newline."""
    return text.rstrip("\n") + "\n"


def _kind(value: Any) -> str:
    return "an object" if isinstance(value, Mapping) else f"{json.dumps(value)[:100]}"


MAX_SAMPLE_CHARS = 20_000
"""Length limit of an input or output; samples beyond it are left out."""

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
"""Prose, recognised by four words in a row. Prose after an output is an explanation without a heading."""
_FENCE = re.compile(r"\s*(?:`{3,}|~{3,})\w*\s*$")
_BAR = re.compile(r"-{3,}\s*[A-Z][a-z ]{2,30}-{3,}")
"""A heading between two rows of hyphens, which ends a sample."""
_ANY_ANSWER = re.compile(
    r"\b(?:print|output|return|find|give|display|report)s?\b[^.?\n]{0,40}?\b(?:any of (?:them|these|those)"
    r"|any (?:one|such|valid|correct|possible|suitable|optimal|answer|solution|order)\b|in arbitrary order)"
    r"|\b(?:multiple|several|many|more than one) (?:possible |valid |correct |optimal |such |different )*"
    r"(?:answers?|solutions?|outputs?|ways)\b[^.?\n]{0,50}\bany\b",
    re.IGNORECASE,
)
"""A remark that several outputs are right. Repetitions are bounded or cannot overlap, for linear time."""


def samples_in(statement: str) -> Iterator[tuple[str, str]]:
    """Pairs of sample input and output, in the statement's order, without newlines at the end.

    Inputs without an output, inputs that are prose, and samples longer than ``MAX_SAMPLE_CHARS`` are left out.
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
    """Text of the lines up to prose after a blank line, without fences and surrounding blank lines."""
    lines = [line for line in block if not _FENCE.match(line)]
    text: list[str] = []
    for line in lines:
        if _BAR.match(line) or (text and not text[-1].strip() and _PROSE.match(line.strip() + " ")):
            break
        if text or line.strip():
            text.append(line)
    return "\n".join(text).rstrip()
