"""Behaviour of a program on the public inputs: the failed tests, and a key shared by programs of equal behaviour.

Programs run in the sandbox, once per input; their outputs and values are compared outside of it.
"""

import ast
import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from raydebm.tasks.constraints import Finding
from raydebm.tasks.sandbox import Limits, Result, Sandbox, Session, Status
from raydebm.tasks.sandbox.inside.values import Opaque
from raydebm.tasks.taco.calls import PublicTest
from raydebm.tasks.taco.comparison import same_literal, same_output
from raydebm.tasks.taco.grading import PRELUDE, completed

TOTAL_S = 30.0
"""Wall-clock time after which no further test of a program starts."""
OUTPUT_BYTES = 1 << 20
"""Output limit of a public test, lower than that of a hidden test."""
SHOWN_CHARS = 200
"""Maximum length of an input or output in a message."""

_NOT_RUN = "not run"
_ENDINGS = {
    Status.TIMEOUT: "did not end in time",
    Status.MEMORY: "needed too much memory",
    Status.OUTPUT_LIMIT: "gave too much output",
    Status.RUNTIME_ERROR: "ended with an error",
    Status.SYNTAX_ERROR: "is not valid Python",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """Behaviour of a program on all public inputs of its problem."""

    findings: tuple[Finding, ...]
    """The failed tests. Their penalties add up to their share of the tests with an expected output."""
    key: str | None
    """Key of the results on all inputs; None for a program without a result on any of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    code: str
    function: str | None = None
    """Requested function. None for a program that reads stdin, or if the tests name the function."""
    head: str = ""
    """Source that the program may continue or rely on. If empty, the official grader's imports are provided."""


def behaviour_of(program: Program, tests: Sequence[PublicTest], *, sandbox: Sandbox, limits: Limits) -> Behaviour:
    """Run an untrusted program on all public inputs. Either all tests call a function, or all use stdin.

    After a timeout, a call with too much output, or ``TOTAL_S``, the remaining tests are not run and count as failed.
    """
    run = _Run(program, sandbox, replace(limits, output_bytes=min(limits.output_bytes, OUTPUT_BYTES)))
    try:
        seen = [run.observe(test) for test in tests]
    except _NotLoadedError as error:
        fault = Finding(penalty=1.0, values={"fault": str(error)}, message="The program {fault}, on every input.")
        return Behaviour(findings=(fault,) if any(test.expected is not None for test in tests) else (), key=None)
    finally:
        run.close()
    outputs = [output for output, _ in seen]
    key = "behaviour " + hashlib.sha256(repr(outputs).encode()).hexdigest()[:32] if any(outputs) else None
    tested = [(test, fault) for test, (_, fault) in zip(tests, seen, strict=True) if test.expected is not None]
    return Behaviour(findings=tuple(_findings(tested)), key=key)


def _findings(tested: Sequence[tuple[PublicTest, str]]) -> Iterator[Finding]:
    """Findings of the tests with an expected output. A fault is a clause about a failure, empty for a passed test."""
    total, num_left = len(tested), sum(fault == _NOT_RUN for _, fault in tested)
    for number, (test, fault) in enumerate(tested, start=1):
        if fault and fault != _NOT_RUN:
            is_call, known = test.function is not None, test.expected or ""
            asked = _clipped_text(test.call) if is_call else f"the input {_clipped(test.given)}"
            expected = _clipped_text(known) if is_call else _clipped(known)
            yield Finding(
                penalty=1 / total,
                values={"number": number, "total": total, "asked": asked, "expected": expected, "got": fault},
                message="Public test {number} of {total}: for {asked} the expected result is {expected}, but {got}.",
            )
    if num_left:
        yield Finding(
            penalty=num_left / total,
            values={"left": num_left, "total": total},
            message="{left} of {total} public tests were not run, because an earlier one had to be stopped.",
        )


class _NotLoadedError(Exception):
    """The program fails before the first input."""


class _Run:
    """Run of one program on one test after another: in a new process per test for stdin, loaded once for calls."""

    def __init__(self, program: Program, sandbox: Sandbox, limits: Limits) -> None:
        self._program, self._sandbox, self._limits = program, sandbox, limits
        self._session: Session | None = None
        self._was_stopped = False
        self._end = time.monotonic() + TOTAL_S

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def observe(self, test: PublicTest) -> tuple[str | None, str]:
        """(digest of the result, or None; clause about the failure, empty without one)."""
        if self._was_stopped or time.monotonic() > self._end:
            return None, _NOT_RUN
        return self._observe_program(test) if test.function is None else self._observe_call(test, test.function)

    def _observe_program(self, test: PublicTest) -> tuple[str | None, str]:
        self._session = self._sandbox.unused(self._session)
        given = test.given.encode("utf-8", "surrogatepass")
        result = self._session.run(self._program.code, given, limits=self._limits, prelude=PRELUDE)
        self._was_stopped = result.status is Status.TIMEOUT
        if result.status is Status.SYNTAX_ERROR:
            raise _NotLoadedError(_ending(result))
        if result.status is not Status.OK:
            return None, f"the program {_ending(result)}"
        printed = result.stdout.decode("utf-8", "replace")
        lines = [" ".join(line.split()) for line in printed.split("\n") if line.strip()]
        output = _digest("\n".join(lines)) if lines else None
        is_right = test.expected is None or same_output(printed, test.expected)
        return output, "" if is_right else f"the program printed {_clipped(printed)}"

    def _observe_call(self, test: PublicTest, function: str) -> tuple[str | None, str]:
        session = self._session or self._loaded(function)
        result = session.call(function, ast.literal_eval(test.given), limits=self._limits)
        self._was_stopped = result.status in (Status.TIMEOUT, Status.OUTPUT_LIMIT)
        if result.status is not Status.OK:
            return None, f"the call {_ending(result)}"
        try:
            output = _digest(_canonical(result.value))
            is_right = test.expected is None or same_literal(result.value, ast.literal_eval(test.expected))
        except _NotPlainResultError as error:
            return None, f"the call returned {error}, which is not a plain value"
        except RecursionError:
            return None, "the call returned a value that is nested too deeply"
        return output, "" if is_right else f"the call returned {_clipped_text(_shown(result.value))}"

    def _loaded(self, function: str) -> Session:
        self._session, program = self._sandbox.session(), self._program
        code = completed(program.code, program.head, program.function or function) if program.head else program.code
        result = self._session.open_program(code, limits=self._limits, prelude={} if program.head else PRELUDE)
        if result.status is not Status.OK:
            raise _NotLoadedError(_ending(result))
        return self._session


class _NotPlainResultError(Exception):
    """The result is not plain data, but for example a generator."""


def _canonical(value: Any) -> str:
    """Text shared by equal values: ``4`` and ``4.0``, floats to 9 digits, sets in any order."""
    if isinstance(value, Opaque):
        raise _NotPlainResultError(_clipped_text(value.name))
    if isinstance(value, bool | int):
        return hex(value)
    if isinstance(value, float):
        return hex(int(value)) if value.is_integer() else f"{value:.9g}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({','.join(map(_canonical, value))})"
    if isinstance(value, set | frozenset):
        return f"set({','.join(sorted(map(_canonical, value)))})"
    if isinstance(value, dict):
        pairs = (f"{_canonical(key)}:{_canonical(part)}" for key, part in value.items())
        return f"dict({','.join(sorted(pairs))})"
    return repr(value)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _ending(result: Result) -> str:
    words = _ENDINGS[result.status]
    return f"{words} ({_clipped_text(result.detail)})" if result.detail else words


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:  # the integer has more digits than Python converts to text
        return "an integer of very many digits"


def _clipped(text: str) -> str:
    """The start of a text, as a literal on one line."""
    return _clipped_text(repr(text[: SHOWN_CHARS + 1]))


def _clipped_text(text: str) -> str:
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return line if len(line) <= SHOWN_CHARS else f"{line[: SHOWN_CHARS - 1]}…"
