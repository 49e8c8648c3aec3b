"""Base classes of tasks with problems in files or on the hub: loading, prompts, comparison with gold.

``ReferenceTask`` is for tasks with one right answer per question, ``FileTask`` for those that judge in another way.
Neither is required: any implementation of ``raydebm.tasks.base.Task`` is a task.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, ClassVar

from raydebm.errors import TaskDataError
from raydebm.identity import content_id
from raydebm.records import Gold, Message, Problem
from raydebm.tasks.base import Answer, Judgement, instructed, judgement
from raydebm.tasks.constraints import Constraint
from raydebm.tasks.sources import check_split, distinct

Pairs = Iterator[tuple[Problem, Gold]]


class FileTask(ABC):
    """Base class of tasks with problems in files: loads them and writes the chat of the first pass."""

    name: ClassVar[str]
    instructions: ClassVar[str]
    """The system message."""
    splits: ClassVar[tuple[str, ...]] = ("train", "test")
    constraints: tuple[Constraint, ...] = ()
    """Default: no constraints, because such answers cannot be checked exactly without gold."""

    @abstractmethod
    def pairs(self, split: str, source: str | None, seed: int) -> Pairs:
        """Problems with gold, in the order of the source. Subclasses document the possible sources."""

    def load(self, split: str, *, source: str | None = None, limit: int | None = None, seed: int = 0) -> Pairs:
        """Problems with gold in the order of the source (see ``pairs``), without repetitions."""
        check_split(split, self.splits, task=self.name)
        return islice(distinct(self.pairs(split, source, seed)), limit)

    def messages(self, problem: Problem) -> tuple[Message, ...]:
        return instructed(self.instructions, problem.prompt)


class ReferenceTask(FileTask):
    """Base class of tasks with one right answer per question, stored in gold as ``value[gold_key]``."""

    gold_key: ClassVar[str] = "answer"
    nothing: ClassVar[str] = "no answer in the text"
    """Reason in the verdict on a text that does not parse."""

    @abstractmethod
    def parse(self, problem: Problem, text: str) -> str | None:
        """See ``Task``."""

    def render(self, problem: Problem, answer: Answer) -> str:
        """The answer after four hash signs."""
        return f"#### {answer}"

    def vote_key(self, problem: Problem, answer: Answer) -> str:
        return str(answer)

    def gold_of(self, problem: Problem, answer: str) -> Gold:
        """Gold of a problem with its right answer."""
        return Gold(task=self.name, problem_id=problem.problem_id, value={self.gold_key: answer})

    def gold_from_answer(self, problem: Problem, text: str) -> Gold | None:
        answer = self.parse(problem, text)
        return None if answer is None else self.gold_of(problem, answer)

    def is_right(self, reference: str, answer: str) -> bool:
        """True if the answer is equivalent to the reference."""
        return answer == reference

    def judge(self, problem: Problem, gold: Gold, text: str) -> Judgement:
        """Correct if the answer is equivalent to gold."""
        answer, reference = self.parse(problem, text), gold.value[self.gold_key]
        if answer is None:
            return judgement(False, self.nothing)
        return judgement(self.is_right(reference, answer), f"answered {answer[:60]}, not {reference}")


def question_of(task: str, text: str, *, difficulty: str = "", kind: str = "", **data: Any) -> Problem:
    """Problem of a question. Its id depends only on the task and the text without surrounding whitespace.

    Reports group results by difficulty. ``data`` is stored in the problem without falsy values; ``source_id`` in it is
    the question's name in the source, by which recorded pools are joined.
    """
    prompt = text.strip()
    return Problem(
        task=task,
        problem_id=content_id(task, prompt),
        prompt=prompt,
        data={name: value for name, value in data.items() if value},
        difficulty=difficulty,
        kind=kind,
    )


def typed_question(text: str, needs: str, holds: Callable[[str], bool] = str.isalnum) -> str:
    """Return a client's text unchanged. Raises TaskDataError if no character satisfies ``holds``; the message begins
    with ``needs``, such as ``"a question needs words"``."""
    if not any(map(holds, text)):
        raise TaskDataError(f"{needs}, got {text[:80]!r}; send the whole question as text")
    return text


def source_id_of(row: Mapping[str, Any], *names: str) -> str | None:
    """Name of a row in its source, from the first of these fields in the row. Default: ``problem_id``."""
    value = next((row[name] for name in names or ("problem_id",) if name in row), None)
    return None if value is None else str(value)
