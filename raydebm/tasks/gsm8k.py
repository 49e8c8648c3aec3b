"""GSM8K: grade-school word problems with one number as the answer (paper section 4.1).

The paper applies no constraint here, so selection rests on the learned energy.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import islice
from typing import Any, ClassVar

from raydebm.constraints import Constraint
from raydebm.errors import TaskDataError
from raydebm.identity import content_id
from raydebm.records import Gold, Message, Problem, Verdict
from raydebm.tasks.answers import find_number, read_number, render_number
from raydebm.tasks.base import Answer, Judgement, TaskDefaults, instructed, required_field
from raydebm.tasks.sources import check_split, distinct, split_rows

TASK = "gsm8k"
HUB_DATASET = "openai/gsm8k"

_SPLITS = ("train", "test")

_INSTRUCTIONS = (
    "Solve the math word problem. Think step by step and check your arithmetic. "
    "Then end with one last line that holds four hash signs and the final number alone, without units: #### 42"
)

_SHORT_WORDS, _LONG_WORDS = 35, 50
"""Close to the terciles of the test questions."""


class Gsm8k:
    """The task. An answer is the canonical text of an exact number: ``"18"``, ``"0.5"``, ``"1/3"``."""

    name: ClassVar[str] = TASK
    defaults: ClassVar[TaskDefaults] = TaskDefaults(
        max_length=8192, batch_size=32, patience=2, learning_rate=5e-5, lambda_=1.0, max_tokens=1024
    )
    constraints: ClassVar[tuple[Constraint, ...]] = ()
    """None: without gold, nothing about a single number can be checked exactly."""

    def load(
        self, split: str, *, source: str | None = None, limit: int | None = None, seed: int = 0
    ) -> Iterator[tuple[Problem, Gold]]:
        """Yield problems in the order of the source; a question that came up before is passed over.

        Args:
            split: ``"train"`` or ``"test"``.
            source: None or ``"hub:openai/gsm8k"`` for the published data set; else a ``.jsonl`` or ``.jsonl.gz`` file
                with the fields question and answer (the part after ``####`` counts) or gold, and optionally
                problem_id; else a folder of such files, of which ``problems_{split}.jsonl.gz`` or ``{split}.jsonl``
                (either with or without ``.gz``) is read.
            limit: at most so many.
            seed: not used; the data is fixed.

        Raises:
            TaskDataError: the data is missing or not as described.
        """
        check_split(split, _SPLITS, task=TASK)
        rows = split_rows(split, source, dataset=HUB_DATASET, configuration="main")
        return islice(distinct(_problem_and_gold(row, where) for where, row in rows), limit)

    def messages(self, problem: Problem) -> tuple[Message, ...]:
        return instructed(_INSTRUCTIONS, problem.prompt)

    def problem_from_text(self, text: str) -> Problem:
        """The question as typed.

        Raises:
            TaskDataError: there is no question in the text.
        """
        if not any(character.isalpha() for character in text):
            raise TaskDataError(f"a word problem needs words, got {text!r}; send the whole question as text")
        return problem_of(text)

    def parse(self, problem: Problem, text: str) -> str | None:
        """The marked number, else the last number of the last line; None when there is neither."""
        number = find_number(text, fallback=True)
        return None if number is None else render_number(number)

    def render(self, problem: Problem, answer: Answer) -> str:
        return f"#### {answer}"

    def vote_key(self, problem: Problem, answer: Answer) -> str:
        return str(answer)

    def gold_from_answer(self, problem: Problem, text: str) -> Gold | None:
        answer = self.parse(problem, text)
        return None if answer is None else Gold(task=TASK, problem_id=problem.problem_id, value={"answer": answer})

    def judge(self, problem: Problem, gold: Gold, text: str) -> Judgement:
        """Correct when the numbers are equal, exactly."""
        answer = self.parse(problem, text)
        if answer is None:
            return Judgement(verdict=Verdict.INCORRECT, reason="no number in the text")
        if Fraction(answer) != Fraction(gold.value["answer"]):
            return Judgement(verdict=Verdict.INCORRECT, reason=f"answered {answer}, not {gold.value['answer']}")
        return Judgement(verdict=Verdict.CORRECT)


def problem_of(question: str, *, source_id: str | None = None) -> Problem:
    """The problem of a question; its id is made of the text alone.

    Args:
        question: the text; surrounding white space is no part of it.
        source_id: the problem's name in its source, by which recorded pools join.
    """
    prompt = question.strip()
    return Problem(
        task=TASK,
        problem_id=content_id(TASK, prompt),
        prompt=prompt,
        data={} if source_id is None else {"source_id": source_id},
        difficulty=_difficulty(prompt),
    )


def _difficulty(question: str) -> str:
    """Length of the question in words.

    The paper groups by the number of reasoning steps, but those are counted in the reference solution. A question's
    length is known without it, and goes with lower accuracy at least as closely (44 recorded models).
    """
    words = len(question.split())
    if words <= _SHORT_WORDS:
        return f"up to {_SHORT_WORDS} words"
    return f"{_SHORT_WORDS + 1}-{_LONG_WORDS} words" if words <= _LONG_WORDS else f"over {_LONG_WORDS} words"


def _problem_and_gold(row: Mapping[str, Any], where: str) -> tuple[Problem, Gold]:
    question = required_field(row, "question", where)
    source_id = row.get("problem_id")
    problem = problem_of(str(question), source_id=None if source_id is None else str(source_id))
    reference = str(row["gold"] if "gold" in row else required_field(row, "answer", where))
    number = read_number(reference) if "gold" in row else find_number(reference)
    if number is None:
        raise TaskDataError(f"{where}: no number in the reference answer {reference[-60:]!r}; write it after ####")
    return problem, Gold(task=TASK, problem_id=problem.problem_id, value={"answer": render_number(number)})
