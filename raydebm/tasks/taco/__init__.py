"""TACO: competitive programming in Python, judged by hidden tests (paper section 4.1 and its appendix on data).

Hidden tests, which are gold, label a program. Public tests, from the statement, the data or a user, are a constraint
(the paper has none here), and programs vote by their behaviour on the public inputs. Programs run in a sandbox
(``raydebm.tasks.sandbox``), and their results are compared outside of it.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import ClassVar

from raydebm.records import Gold, Message, Problem
from raydebm.tasks.base import RULES, Answer, Judgement, TaskDefaults, instructed, judgement, unlabeled
from raydebm.tasks.constraints import Constraint, Finding
from raydebm.tasks.file_backed import FileTask, Pairs, typed_question
from raydebm.tasks.sandbox import Limits, Sandbox
from raydebm.tasks.sources import split_rows
from raydebm.tasks.taco.behaviour import Behaviour, Program, behaviour_of
from raydebm.tasks.taco.calls import PublicTest
from raydebm.tasks.taco.extraction import fenced, find_program, normal_form
from raydebm.tasks.taco.grading import Grade, grade
from raydebm.tasks.taco.public_tests import FIELD, public_tests, shown_tests
from raydebm.tasks.taco.sources import HUB_DATASET, TASK, problem_and_gold, problem_of, problem_of_prompt

__all__ = ["Taco", "problem_of"]

NUM_REMEMBERED = 256
"""Number of programs whose behaviour a process caches."""

_FILES = ("{split}.jsonl.gz", "{split}.jsonl", "problems_{split}.jsonl.gz", "problems_{split}.jsonl")

_FEEDBACK = (
    f"Your program fails these tests:\n{RULES}\nFind the mistake and correct it. Reply with the whole corrected "
    "program in one fenced block that starts with ```python."
)


class Taco(FileTask):
    """The task. An answer is the source of a program."""

    name: ClassVar[str] = TASK
    defaults: ClassVar[TaskDefaults] = TaskDefaults(
        max_length=5120,
        batch_size=32,
        patience=2,
        max_tokens=4096,
        max_correct=8,
        max_incorrect=24,
        labels_per_worker=32,
        answers_compete=False,
        label_deadline_s=600.0,
        feedback=_FEEDBACK,
    )
    instructions: ClassVar[str] = (
        "Solve the programming problem in Python 3. Think about the algorithm, its complexity and the edge cases. "
        "Then end with the whole program in one fenced block that starts with ```python, and write nothing after it."
    )
    excluded_difficulties: ClassVar[frozenset[str]] = frozenset({"VERY_HARD"})
    """Difficulties that are not loaded, as in the paper, whose generators solve none of these problems. A subclass may
    change them."""
    limits: ClassVar[Limits] = Limits(cpu_s=4.0)
    """Limits of each test. The paper's 4 s count as CPU time."""
    packages: ClassVar[tuple[str, ...]] = ("numpy",)
    """Packages that programs may import, if installed, along with the standard library; as in the official grader."""

    def __init__(self) -> None:
        self.constraints = (Constraint(name="public tests", check=self._failed_public_tests),)
        """The penalty is the share of public tests that a program fails. The constraint is not exact, because public
        tests cover only a part of the requirements."""
        self._sandbox: Sandbox | None = None
        # The constraint and the vote key share a run, and equal programs of a pool are run once.
        self._behaviour = lru_cache(maxsize=NUM_REMEMBERED)(self._run_public_tests)

    def pairs(self, split: str, source: str | None, seed: int) -> Pairs:
        """Problems with gold.

        The source is None or ``"hub:BAAI/TACO"`` for the published data set, or ``"hub:likaixin/TACO-verified"`` for
        the part that the paper uses; or a ``.jsonl`` or ``.jsonl.gz`` file (or a folder with a file named after the
        split) with TACO's fields (question, input_output, starter_code, difficulty, solutions, public_tests), or with
        those of the recorded APPS, HumanEval and MBPP files.
        """
        rows = split_rows(split, source, dataset=HUB_DATASET, names=_FILES)
        pairs = (problem_and_gold(row, where) for where, row in rows)
        return (pair for pair in pairs if pair[0].difficulty not in self.excluded_difficulties)

    def messages(self, problem: Problem) -> tuple[Message, ...]:
        """The instructions and the statement, followed by the public tests of the problem's data."""
        given = shown_tests(problem.data.get(FIELD) or [], problem.data.get("function"))
        return instructed(self.instructions, f"{problem.prompt}\n\n{given}" if given else problem.prompt)

    def problem_from_text(self, text: str) -> Problem:
        """Problem of a typed statement. It has no hidden tests, so its answers are never judged."""
        return problem_of_prompt(typed_question(text, "a programming problem needs words", str.isalpha))

    def parse(self, problem: Problem, text: str) -> str | None:
        return find_program(text, function=problem.data.get("function"), head=problem.data.get("head") or "")

    def render(self, problem: Problem, answer: Answer) -> str:
        return fenced(str(answer))

    def vote_key(self, problem: Problem, answer: Answer) -> str:
        """Key of programs with the same behaviour on every public input.

        Without public inputs, or if the program has no result on any of them (it crashes, never ends or prints
        nothing), only programs with the same ``normal_form`` share a key: programs that fail in different ways are not
        a majority.
        """
        tests = public_tests(problem)
        key = self._behaviour(_program(problem, answer), tests).key if tests else None
        return key or normal_form(str(answer))

    def _failed_public_tests(self, problem: Problem, answer: Answer) -> Iterator[Finding]:
        tests = public_tests(problem)
        if tests:
            yield from self._behaviour(_program(problem, answer), tests).findings

    def _run_public_tests(self, program: Program, tests: tuple[PublicTest, ...]) -> Behaviour:
        return behaviour_of(program, tests, sandbox=self._started_sandbox(), limits=self.limits)

    def judge(self, problem: Problem, gold: Gold, text: str) -> Judgement:
        """Correct if every hidden test passes; incorrect without a program; unlabeled without tests. ResourceError if
        programs cannot be isolated."""
        code = self.parse(problem, text)
        if code is None:
            return judgement(False, "no_code: no program in the text", severity=Grade.NO_CODE.severity)
        if gold.value["kind"] != "assert" and not gold.value["tests"]:
            return unlabeled("no tests for this problem")
        report = grade(code, gold.value, sandbox=self._started_sandbox(), limits=self.limits)
        has_passed = report.grade is Grade.PASSED
        return judgement(has_passed, report.reason, severity=None if has_passed else report.grade.severity)

    def _started_sandbox(self) -> Sandbox:
        if self._sandbox is None:
            self._sandbox = Sandbox(self.limits, packages=self.packages)
        return self._sandbox


def _program(problem: Problem, answer: Answer) -> Program:
    return Program(code=str(answer), function=problem.data.get("function"), head=problem.data.get("head") or "")
