"""What a task must provide, in full. Everything the rest of the package knows about a benchmark.

A task is gold-free except in ``load`` (which yields gold with the problem) and ``judge`` (which is called by
``labels`` alone).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from raydebm.constraints import Constraint
from raydebm.errors import TaskDataError
from raydebm.records import Gold, Message, Problem, Verdict

Answer = Any
"""What ``parse`` found: a JSON value whose meaning only the task knows."""


RULES = "{rules}"
"""In a task's feedback: one line for each violation."""
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
    """Texts of a problem that are paired at most, where the recipe does not say; None: all."""
    label_deadline_s: float = 60.0
    """For the check of one candidate, all its tests together; what takes longer is unlabeled."""
    labels_per_worker: int = 4096
    """Candidates that make one more checker process worth its start; few where a check takes seconds."""
    answers_compete: bool = True
    """Whether at most one answer of a problem is right. Not so with programs and plans: there the probabilities of
    several answers need not add up to 1, and ``generation.waves`` samples everything."""
    feedback: str = FEEDBACK
    """What a later pass is told about an answer that violates constraints, with ``RULES`` in it. It should say what to
    reply with: a small model takes "the expected result is True" for a request to answer True."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A checker's decision from gold."""

    verdict: Verdict
    violation_score: float | None = None
    """In [0, 1], lower is better; None where the task only knows right and wrong."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """What the violation score is made of, by name, each in [0, 1], lower is better; empty where it has no parts. A
    task gives the same names for every answer, 0 for a part that is in order."""
    severity: int | None = None
    """How far an incorrect answer is from right, where the task tells kinds of failure apart; smaller is nearer."""
    reason: str = ""


def instructed(instructions: str, prompt: str) -> tuple[Message, ...]:
    """The usual chat of a task: instructions to the system, the problem from the user."""
    return ({"role": "system", "content": instructions}, {"role": "user", "content": prompt})


@runtime_checkable
class Task(Protocol):
    """One benchmark, or a user's own job."""

    @property
    def name(self) -> str:
        """Name in recipes; small letters, digits and ``_``."""
        ...

    @property
    def defaults(self) -> TaskDefaults:
        """The paper's settings for the task."""
        ...

    @property
    def constraints(self) -> Sequence[Constraint]:
        """The gold-free checks of a parsed answer; empty for a task whose answers cannot be checked without gold."""
        ...

    def load(
        self, split: str, *, source: str | None = None, limit: int | None = None, seed: int = 0
    ) -> Iterator[tuple[Problem, Gold]]:
        """Yield problems of a split with content-based ids, so that reordering the data changes no id.

        Args:
            split: ``"train"`` or ``"test"``.
            source: None for the task's default (hub data set or own generator), else a local file or folder.
            limit: at most so many problems.
            seed: for tasks that make their own problems.

        Raises:
            TaskDataError: the data is missing or not as described.
        """
        ...

    def messages(self, problem: Problem) -> tuple[Message, ...]:
        """The chat of the first pass; the format instructions stand in the system message."""
        ...

    def problem_from_text(self, text: str) -> Problem:
        """Make a problem of what a client typed.

        Raises:
            TaskDataError: the text is not a problem of this task; the message says what is missing.
        """
        ...

    def parse(self, problem: Problem, text: str) -> Answer | None:
        """The answer in a completion, or None when it has none. Never raises on any text."""
        ...

    def render(self, problem: Problem, answer: Answer) -> str:
        """The answer in the canonical text that ``parse`` reads back to the same answer."""
        ...

    def vote_key(self, problem: Problem, answer: Answer) -> str:
        """Answers that mean the same have the same key."""
        ...

    def judge(self, problem: Problem, gold: Gold, text: str) -> Judgement:
        """Compare a completion with gold. Text that does not parse is incorrect."""
        ...


@runtime_checkable
class GoldFromAnswer(Protocol):
    """A task that can make gold of one correct answer, because every right answer says the same.

    Tasks whose right answers differ, such as programs and plans, are none.
    """

    def gold_from_answer(self, problem: Problem, text: str) -> Gold | None:
        """Gold of a correct answer that somebody gave, for ``judge``; None when the text has no answer."""
        ...


def gold_maker(task: object) -> GoldFromAnswer | None:
    """The task, where one correct answer to a problem makes gold; None where right answers differ. A class of tasks of
    which some make gold and some do not says by ``labels_by_gold`` which one does."""
    return task if isinstance(task, GoldFromAnswer) and getattr(task, "labels_by_gold", True) else None


def required_field(row: Mapping[str, Any], name: str, where: str) -> Any:
    """The field of a data row, or an error that names the row and the field.

    Raises:
        TaskDataError: the row has no such field.
    """
    if name not in row:
        raise TaskDataError(f"{where}: field {name!r} is missing; found {', '.join(sorted(row)) or 'no fields'}")
    return row[name]
