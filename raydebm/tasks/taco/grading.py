"""Run a program against hidden tests and grade it (paper appendix, "TACO": all tests, 4 s each)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from raydebm.tasks.sandbox import CallResult, Limits, RunResult, Sandbox, Session, Status
from raydebm.tasks.taco.comparison import same_output, same_value
from raydebm.tasks.taco.extraction import defines

_MODULES = ("sys", "time", "itertools", "collections", "math", "fractions", "random", "heapq", "numpy")
PRELUDE = {
    **dict(zip(_MODULES, _MODULES, strict=True)),
    **dict.fromkeys(("accumulate", "product", "permutations", "combinations"), "itertools"),
    **dict.fromkeys(("Counter", "OrderedDict", "deque", "defaultdict", "ChainMap"), "collections"),
    **dict.fromkeys(("sqrt", "sin", "cos", "tan", "ceil", "fabs", "floor", "gcd", "exp", "log", "log2"), "math"),
    **dict.fromkeys(
        ("heappush", "heappop", "heapify", "heapreplace", "merge", "nlargest", "nsmallest", "heappushpop"), "heapq"
    ),
    **dict.fromkeys(("List", "Tuple"), "typing"),
    **dict.fromkeys(("stdin", "stdout"), "sys"),
    "lru_cache": "functools",
    "np": "numpy",
}
"""Names that the official grader imports before every program, with their modules."""


class Grade(StrEnum):
    """Grade of a program, from right to the furthest from right."""

    PASSED = "passed"
    WRONG_ANSWER = "wrong_answer"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    RUNTIME_ERROR = "runtime_error"
    SYNTAX_ERROR = "syntax_error"
    NO_CODE = "no_code"

    @property
    def severity(self) -> int:
        """0 for passed, then in the order of the class.

        A program that runs to its end on a hidden test and is wrong is the hardest negative; one that does not parse
        the easiest.
        """
        return list(Grade).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradingReport:
    grade: Grade
    num_tests: int
    failed_test: int | None = None
    """Number of the first failed test, from 1; later ones were not run."""
    detail: str = ""

    @property
    def reason(self) -> str:
        """Failure and failed test in words; empty if the program passed."""
        if self.grade is Grade.PASSED:
            return ""
        where = "" if self.failed_test is None else f" in test {self.failed_test} of {self.num_tests}"
        return f"{self.grade}{where}" + (f": {self.detail}" if self.detail else "")


def grade(code: str, tests: Mapping[str, Any], *, sandbox: Sandbox, limits: Limits) -> GradingReport:
    """Run a program against one problem's tests, up to the first failure.

    Args:
        tests: ``{"kind": "stdin", "tests": [{"input": text, "output": text}]}``; or ``{"kind": "call", "function":
            name, "tests": [{"input": [argument], "output": value}]}``; or ``{"kind": "assert", "function": name,
            "head": source, "test": source}`` for test code that calls the function itself; the head is the beginning
            given in the prompt.

    Raises:
        ResourceError: no sandbox can be started.
    """
    if tests["kind"] == "stdin":
        return _grade_program(code, tests["tests"], sandbox, limits)
    if tests["kind"] == "call":
        return _grade_function(code, tests["function"], tests["tests"], sandbox, limits)
    return _grade_by_assertions(code, tests, sandbox, limits)


def _grade_program(code: str, tests: Sequence[Mapping[str, Any]], sandbox: Sandbox, limits: Limits) -> GradingReport:
    session: Session | None = None
    try:
        for number, test in enumerate(tests, start=1):
            session = sandbox.unused(session)
            result = session.run(code, test["input"].encode("utf-8", "surrogatepass"), limits=limits, prelude=PRELUDE)
            grade_, detail = _judged_output(result, test["output"])
            if grade_ is not Grade.PASSED:
                return GradingReport(grade=grade_, num_tests=len(tests), failed_test=number, detail=detail)
    finally:
        if session is not None:
            session.close()
    return GradingReport(grade=Grade.PASSED, num_tests=len(tests))


def _judged_output(result: RunResult, expected: str) -> tuple[Grade, str]:
    if result.status is not Status.OK:
        return Grade(result.status.value), result.detail
    if same_output(result.stdout.decode("utf-8", "replace"), expected):
        return Grade.PASSED, ""
    return Grade.WRONG_ANSWER, ""


def _grade_function(
    code: str, function: str, tests: Sequence[Mapping[str, Any]], sandbox: Sandbox, limits: Limits
) -> GradingReport:
    with sandbox.session() as session:
        result = session.open_program(code, limits=limits, prelude=PRELUDE)
        if result.status is not Status.OK:
            return _failure(result, len(tests))
        for number, test in enumerate(tests, start=1):
            result = session.call(function, _arguments(test["input"]), limits=limits)
            if result.status is not Status.OK:
                return _failure(result, len(tests), number)
            if not same_value(result.value, test["output"]):
                return GradingReport(grade=Grade.WRONG_ANSWER, num_tests=len(tests), failed_test=number)
    return GradingReport(grade=Grade.PASSED, num_tests=len(tests))


def _failure(result: CallResult, num_tests: int, failed_test: int | None = None) -> GradingReport:
    grade_ = Grade(result.status.value)
    return GradingReport(grade=grade_, num_tests=num_tests, failed_test=failed_test, detail=result.detail)


def _arguments(values: Sequence[Any]) -> list[Any]:
    """Arguments with numbers as keys of the first one if all look like them: JSON only has text keys."""
    if values and isinstance(values[0], dict):
        try:
            return [{int(key): entry for key, entry in values[0].items()}, *values[1:]]
        except ValueError:
            pass
    return list(values)


def completed(code: str, head: str, function: str) -> str:
    """A program that defines the function gets the head's imports; any other continues the head's text."""
    if not defines(code, function):
        return head + code
    return "\n".join([line for line in head.split("\n") if line.startswith(("import ", "from "))] + [code])


def _grade_by_assertions(code: str, tests: Mapping[str, Any], sandbox: Sandbox, limits: Limits) -> GradingReport:
    """Grade by test code. It runs in another sandbox than the program, and only plain values pass between them."""
    with sandbox.session() as session, sandbox.session() as tester:
        result = session.open_program(completed(code, tests["head"], tests["function"]), limits=limits)
        if result.status is not Status.OK:
            return _failure(result, 1)
        tester.open_test(tests["test"], tests["function"], limits=limits)
        raised = ""
        while True:
            message = tester.step(limits=limits)
            if "done" in message:
                return GradingReport(grade=Grade.PASSED, num_tests=1)
            if "ask" not in message:
                grade_, detail = (Grade.RUNTIME_ERROR, raised) if raised else (Grade.WRONG_ANSWER, message["failed"])
                return GradingReport(grade=grade_, num_tests=1, failed_test=1, detail=detail)
            encoded = session.call_encoded(message["function"], message["ask"], limits=limits)
            if encoded.status is Status.OK:
                raised = ""
                tester.answer(encoded.value)
            elif encoded.status is Status.RUNTIME_ERROR:
                raised = encoded.detail
                tester.answer_raised(raised)
            else:
                return _failure(encoded, 1, 1)
