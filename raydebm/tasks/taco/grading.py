"""Grade programs by running them against hidden tests (paper appendix, "TACO": all tests, 4 s each)."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from raydebm.tasks.sandbox import Limits, Result, Sandbox, Session, Status
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
    """Grade of a program, in the order of severity."""

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
        """Position in the order of grades, from 0 for passed.

        A program that ends with a wrong output is the hardest negative; a text without a program is the easiest.
        """
        return list(Grade).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradingReport:
    grade: Grade
    failed_test: int | None = None
    """Number of the first failed test, from 1; later ones were not run. None if all passed, or it did not load."""
    reason: str = ""
    """Grade, failed test and detail of the failure; empty if the program passed."""


def grade(code: str, tests: Mapping[str, Any], *, sandbox: Sandbox, limits: Limits) -> GradingReport:
    """Run a program against one problem's tests, up to the first failure.

    Args:
        tests: ``{"kind": "stdin", "tests": [{"input": text, "output": text}]}``; or ``{"kind": "call", "function":
            name, "tests": [{"input": [argument], "output": value}]}``; or ``{"kind": "assert", "function": name,
            "head": source, "test": source}`` for test code that calls the function itself, where the head is the
            beginning of the program in the prompt.

    Raises:
        ResourceError: no sandbox can be started.
    """
    judge = {"stdin": _outputs, "call": _calls, "assert": _assertions}[tests["kind"]]
    num_tests = len(tests["tests"]) if "tests" in tests else 1
    with closing(judge(code, tests, sandbox, limits)) as outcomes:
        for number, (grade_, detail) in enumerate(outcomes):
            if grade_ is not Grade.PASSED:
                where = f" in test {number} of {num_tests}" if number else ""
                reason = f"{grade_}{where}" + (f": {detail}" if detail else "")
                return GradingReport(grade=grade_, failed_test=number or None, reason=reason)
    return GradingReport(grade=Grade.PASSED)


_Outcomes = Generator[tuple[Grade, str]]
"""Grade of loading the program, then of one test after another, each with the detail of a failure."""
_PASSED = (Grade.PASSED, "")


def _graded(result: Result, *, is_right: bool) -> tuple[Grade, str]:
    if result.status is not Status.OK:
        return Grade(result.status.value), result.detail
    return _PASSED if is_right else (Grade.WRONG_ANSWER, "")


def _outputs(code: str, tests: Mapping[str, Any], sandbox: Sandbox, limits: Limits) -> _Outcomes:
    yield _PASSED  # loaded again for every test
    session: Session | None = None
    try:
        for test in tests["tests"]:
            session = sandbox.unused(session)
            result = session.run(code, test["input"].encode("utf-8", "surrogatepass"), limits=limits, prelude=PRELUDE)
            printed = result.stdout.decode("utf-8", "replace")
            yield _graded(result, is_right=result.status is Status.OK and same_output(printed, test["output"]))
    finally:
        if session is not None:
            session.close()


def _calls(code: str, tests: Mapping[str, Any], sandbox: Sandbox, limits: Limits) -> _Outcomes:
    with sandbox.session() as session:
        yield _graded(session.open_program(code, limits=limits, prelude=PRELUDE), is_right=True)
        for test in tests["tests"]:
            result = session.call(tests["function"], _arguments(test["input"]), limits=limits)
            yield _graded(result, is_right=result.status is Status.OK and same_value(result.value, test["output"]))


def _arguments(values: Sequence[Any]) -> list[Any]:
    """Arguments, with whole-number keys in the first one if all of its keys are such texts: JSON has only text keys."""
    if values and isinstance(values[0], dict):
        try:
            return [{int(key): entry for key, entry in values[0].items()}, *values[1:]]
        except ValueError:
            pass
    return list(values)


def completed(code: str, head: str, function: str) -> str:
    """Complete a program: with the head's imports if it defines the function, else with the whole head."""
    if not defines(code, function):
        return head + code
    return "\n".join([line for line in head.split("\n") if line.startswith(("import ", "from "))] + [code])


def _assertions(code: str, tests: Mapping[str, Any], sandbox: Sandbox, limits: Limits) -> _Outcomes:
    """Grade by test code, which runs in a sandbox of its own and exchanges plain values with the program's."""
    with sandbox.session() as session, sandbox.session() as tester:
        program = completed(code, tests["head"], tests["function"])
        yield _graded(session.open_program(program, limits=limits), is_right=True)
        tester.open_test(tests["test"], tests["function"], limits=limits)
        raised = ""
        while "ask" in (message := tester.step(limits=limits)):
            result = session.call_encoded(message["function"], message["ask"], limits=limits)
            if result.status is Status.OK:
                raised = ""
                tester.answer(result.value)
            elif result.status is Status.RUNTIME_ERROR:
                raised = result.detail
                tester.answer_raised(raised)
            else:
                yield _graded(result, is_right=False)
                return
        if "done" in message:
            yield _PASSED
        else:
            yield (Grade.RUNTIME_ERROR, raised) if raised else (Grade.WRONG_ANSWER, message["failed"])
