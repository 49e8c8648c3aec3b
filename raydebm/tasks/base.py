"""Interface between the tasks and the rest of the package.

Three methods handle gold: ``load`` yields it with each problem, ``judge``, which only ``labels`` calls, reads it, and
``gold_from_answer`` makes it from a reported answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from raydebm.errors import TaskDataError
from raydebm.records import Gold, Message, Problem, Verdict
from raydebm.tasks.constraints import Constraint

Answer = Any
"""Result of ``parse``: a JSON value that only the task interprets."""

RULES = "{rules}"
"""Placeholder in a task's feedback for the violations, one per line."""
FEEDBACK = (
    f"Your answer breaks these rules:\n{RULES}\nFind an answer that breaks none of them. Use the same output format."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDefaults:
    """Default settings of a task, from the paper's table of training configurations if the task is in it. A recipe may
    override the settings of training, generation and decision."""

    max_length: int
    batch_size: int
    patience: int
    learning_rate: float = 5e-5
    lambda_: float = 1.0
    max_tokens: int = 1024
    max_correct: int | None = None
    max_incorrect: int | None = None
    """Maximum number of correct and of incorrect texts per problem in pairs. Default: all."""
    label_deadline_s: float = 60.0
    """Time limit in seconds for all checks of one candidate. A candidate that exceeds it is unlabeled."""
    labels_per_worker: int = 4096
    """Number of candidates per checker process; small if a check takes seconds."""
    answers_compete: bool = True
    """True if a problem has at most one right answer. False for programs and plans: the probabilities of their answers
    need not add up to 1, and ``generation.waves`` does not apply."""
    feedback: str = FEEDBACK
    """Message for the next pass about an answer that violates constraints; contains ``RULES``. It should say what to
    reply with: a small model may read "the expected result is True" as a request to answer True."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Result of a check of a completion."""

    verdict: Verdict
    violation_score: float | None = None
    """From 0 (best) to 1. None if the task only distinguishes right and wrong."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Parts of the violation score by name, each from 0 (satisfied) to 1. Default: no parts. A task returns the same
    names for every answer."""
    severity: int | None = None
    """Rank of an incorrect answer by its kind of failure, lowest for the closest to a correct one. Default: no rank."""
    reason: str = ""
    fields: Mapping[str, bool] = field(default_factory=dict)
    """Verdict on each field of a structured answer by path (``fields.compare_fields``)."""


def judgement(is_correct: bool, reason: str, **details: Any) -> Judgement:
    """Judge an answer as correct, or as incorrect with a reason. ``details`` are further fields of ``Judgement``."""
    verdict = Verdict.CORRECT if is_correct else Verdict.INCORRECT
    return Judgement(verdict=verdict, reason="" if is_correct else reason, **details)


def unlabeled(reason: str) -> Judgement:
    """Judgement of an answer that could not be checked, with the reason."""
    return Judgement(verdict=Verdict.UNLABELED, reason=reason)


def instructed(instructions: str, prompt: str) -> tuple[Message, ...]:
    """Chat with the instructions as the system message and the problem as the user's."""
    return ({"role": "system", "content": instructions}, {"role": "user", "content": prompt})


@runtime_checkable
class Task(Protocol):
    """One benchmark, or a user's own type of problem."""

    @property
    def name(self) -> str:
        """Name in recipes: lowercase letters, digits and ``_``."""
        ...

    @property
    def defaults(self) -> TaskDefaults:
        """Settings for recipes that do not set their own."""
        ...

    @property
    def constraints(self) -> Sequence[Constraint]:
        """Gold-free checks of a parsed answer; empty if answers cannot be checked without gold."""
        ...

    def load(
        self, split: str, *, source: str | None = None, limit: int | None = None, seed: int = 0
    ) -> Iterator[tuple[Problem, Gold]]:
        """Yield problems of a split. Ids depend on the content, not on the order of the data.

        Args:
            split: ``"train"`` or ``"test"``.
            source: a file, a folder, or a form that the task documents. Default: the task's hub data set or generator.
            limit: maximum number of problems. Default: no limit.
            seed: random seed of tasks that generate their problems.

        Raises:
            TaskDataError: the data is missing or malformed.
        """
        ...

    def messages(self, problem: Problem) -> tuple[Message, ...]:
        """Chat of the first pass, with the format instructions in the system message."""
        ...

    def problem_from_text(self, text: str) -> Problem:
        """Parse a problem that a client sent as text.

        Raises:
            TaskDataError: the text is not a problem of this task; the message names what is missing.
        """
        ...

    def parse(self, problem: Problem, text: str) -> Answer | None:
        """The answer in a completion, or None. Does not raise, whatever the text."""
        ...

    def render(self, problem: Problem, answer: Answer) -> str:
        """Canonical text of the answer, which ``parse`` reads back to the same answer."""
        ...

    def vote_key(self, problem: Problem, answer: Answer) -> str:
        """Key of the answer. Answers with equal keys are votes for the same answer."""
        ...

    def judge(self, problem: Problem, gold: Gold, text: str) -> Judgement:
        """Compare a completion with gold. Text that does not parse is incorrect."""
        ...


@runtime_checkable
class GoldFromAnswer(Protocol):
    """Ability of a task to make gold from one correct answer, because all right answers to a problem are equal.

    Tasks with several right answers, such as programs and plans, do not have it.
    """

    def gold_from_answer(self, problem: Problem, text: str) -> Gold | None:
        """Gold for ``judge`` from a correct answer that a user reported; None if the text has no answer."""
        ...


def gold_maker(task: object) -> GoldFromAnswer | None:
    """The task if it can make gold from one correct answer, else None.

    A class that can do so for only some of its tasks has the property ``labels_by_gold``.
    """
    return task if isinstance(task, GoldFromAnswer) and getattr(task, "labels_by_gold", True) else None


def required_field(row: Mapping[str, Any], name: str, where: str, *other_names: str) -> Any:
    """Value of a field of a data row, by its name or the first of the other names in the row.

    Raises:
        TaskDataError: the row has none of them; the message names row and field.
    """
    for known in (name, *other_names):
        if known in row:
            return row[known]
    raise TaskDataError(f"{where}: field {name!r} is missing; found {', '.join(sorted(row)) or 'no fields'}")
