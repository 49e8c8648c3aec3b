"""Interface of a task: everything that the rest of the package knows about a benchmark.

A task is gold-free except in ``load`` (which yields gold with the problem) and ``judge`` (which only ``labels`` calls).
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
    """The paper's settings for a task (its table of training configurations); a recipe may override each."""

    max_length: int
    batch_size: int
    patience: int
    learning_rate: float = 5e-5
    lambda_: float = 1.0
    max_tokens: int = 1024
    max_correct: int | None = None
    max_incorrect: int | None = None
    """Maximum number of texts per problem to pair. Default: all."""
    label_deadline_s: float = 60.0
    """Time limit of one candidate's check with all its tests; beyond it the candidate is unlabeled."""
    labels_per_worker: int = 4096
    """Candidates that justify one more checker process; few if a check takes seconds."""
    answers_compete: bool = True
    """At most one answer of a problem is right. False for programs and plans, where the probabilities of several
    answers need not add up to 1, and ``generation.waves`` does not apply."""
    feedback: str = FEEDBACK
    """Message to a later pass about an answer that violates constraints, with ``RULES`` in it. It should say what to
    reply with: a small model takes "the expected result is True" for a request to answer True."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A checker's decision from gold."""

    verdict: Verdict
    violation_score: float | None = None
    """In [0, 1], lower is better. None if the task only distinguishes right and wrong."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Parts of the violation score by name, each in [0, 1], lower is better; empty if it has none. A task gives the
    same names for every answer, with 0 for a satisfied part."""
    severity: int | None = None
    """Distance of an incorrect answer from a correct one, if the task distinguishes kinds of failure."""
    reason: str = ""
    fields: Mapping[str, bool] = field(default_factory=dict)
    """Verdict on each field of a structured answer by path (``fields.compare_fields``)."""


def judgement(is_correct: bool, reason: str, **details: Any) -> Judgement:
    """Judge an answer as correct, or as incorrect with a reason. ``details`` are further fields of ``Judgement``."""
    verdict = Verdict.CORRECT if is_correct else Verdict.INCORRECT
    return Judgement(verdict=verdict, reason="" if is_correct else reason, **details)


def unlabeled(reason: str) -> Judgement:
    """Leave an answer without a verdict."""
    return Judgement(verdict=Verdict.UNLABELED, reason=reason)


def instructed(instructions: str, prompt: str) -> tuple[Message, ...]:
    """The usual chat of a task: instructions as the system message, the problem as the user's."""
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
        """The paper's settings for the task."""
        ...

    @property
    def constraints(self) -> Sequence[Constraint]:
        """Gold-free checks of a parsed answer; empty if answers cannot be checked without gold."""
        ...

    def load(
        self, split: str, *, source: str | None = None, limit: int | None = None, seed: int = 0
    ) -> Iterator[tuple[Problem, Gold]]:
        """Yield problems of a split with content-based ids, so that reordering the data changes no id.

        Args:
            split: ``"train"`` or ``"test"``.
            source: a local file or folder. Default: the task's own (hub data set or generator).
            limit: maximum number of problems.
            seed: seed of tasks that generate their problems.

        Raises:
            TaskDataError: the data is missing or malformed.
        """
        ...

    def messages(self, problem: Problem) -> tuple[Message, ...]:
        """Chat of the first pass, with the format instructions in the system message."""
        ...

    def problem_from_text(self, text: str) -> Problem:
        """Parse a problem typed by a client.

        Raises:
            TaskDataError: the text is not a problem of this task; the message says what is missing.
        """
        ...

    def parse(self, problem: Problem, text: str) -> Answer | None:
        """The answer in a completion, or None. Never raises on any text."""
        ...

    def render(self, problem: Problem, answer: Answer) -> str:
        """Canonical text of the answer, which ``parse`` reads back to the same answer."""
        ...

    def vote_key(self, problem: Problem, answer: Answer) -> str:
        """Key of the answer; equivalent answers have equal keys."""
        ...

    def judge(self, problem: Problem, gold: Gold, text: str) -> Judgement:
        """Compare a completion with gold. Text that does not parse is incorrect."""
        ...


@runtime_checkable
class GoldFromAnswer(Protocol):
    """A task that can make gold from one correct answer, because all right answers are equal.

    Not for tasks with several right answers, such as programs and plans.
    """

    def gold_from_answer(self, problem: Problem, text: str) -> Gold | None:
        """Gold for ``judge`` from a reported correct answer; None if the text has no answer."""
        ...


def gold_maker(task: object) -> GoldFromAnswer | None:
    """The task if gold can be made from one correct answer, else None.

    If this depends on the task and not only on its class, the class has the property ``labels_by_gold``.
    """
    return task if isinstance(task, GoldFromAnswer) and getattr(task, "labels_by_gold", True) else None


def required_field(row: Mapping[str, Any], name: str, where: str, *other_names: str) -> Any:
    """Value of a data row at a name, or at the first of the other names that the row has.

    Raises:
        TaskDataError: the row has none of them; the message names row and field.
    """
    for known in (name, *other_names):
        if known in row:
            return row[known]
    raise TaskDataError(f"{where}: field {name!r} is missing; found {', '.join(sorted(row)) or 'no fields'}")
