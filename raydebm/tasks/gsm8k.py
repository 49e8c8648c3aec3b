"""GSM8K: grade-school word problems with one number as the answer (paper section 4.1).

The paper has no constraint for this task, so the selection depends on the learned energy.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar

from raydebm.errors import TaskDataError
from raydebm.records import Gold, Problem
from raydebm.tasks.answers import find_number, read_number, render_number
from raydebm.tasks.base import TaskDefaults, required_field
from raydebm.tasks.file_backed import Pairs, ReferenceTask, question_of, source_id_of, typed_question
from raydebm.tasks.sources import split_rows

TASK = "gsm8k"
HUB_DATASET = "openai/gsm8k"

_SHORT_WORDS, _LONG_WORDS = 35, 50
"""Limits of the difficulties, close to the terciles of the test questions' lengths."""


class Gsm8k(ReferenceTask):
    """The task. An answer is the canonical text of an exact number: ``"18"``, ``"0.5"``, ``"1/3"``."""

    name: ClassVar[str] = TASK
    defaults: ClassVar[TaskDefaults] = TaskDefaults(max_length=8192, batch_size=32, patience=2)
    instructions: ClassVar[str] = (
        "Solve the math word problem. Think step by step and check your arithmetic. "
        "Then end with one last line that holds four hash signs and the final number alone, without units: #### 42"
    )
    nothing: ClassVar[str] = "no number in the text"

    def pairs(self, split: str, source: str | None, seed: int) -> Pairs:
        """Problems with gold.

        Sources: None or ``"hub:openai/gsm8k"`` for the published data set; ``"hub:<name>"`` for another one; a data
        file with the fields question and answer (the part after ``####`` counts) or gold, and optionally problem_id; a
        folder with ``problems_{split}.jsonl`` or ``{split}.jsonl``, either of them optionally with ``.gz``.
        """
        rows = split_rows(split, source, dataset=HUB_DATASET, configuration="main")
        return (self._pair(row, where) for where, row in rows)

    def problem_from_text(self, text: str) -> Problem:
        return problem_of(typed_question(text, "a word problem needs words", str.isalpha))

    def parse(self, problem: Problem, text: str) -> str | None:
        """The marked number, else the last number of the last line, else None."""
        number = find_number(text, fallback=True)
        return None if number is None else render_number(number)

    def is_right(self, reference: str, answer: str) -> bool:
        return Fraction(answer) == Fraction(reference)

    def _pair(self, row: Mapping[str, Any], where: str) -> tuple[Problem, Gold]:
        problem = problem_of(str(required_field(row, "question", where)), source_id=source_id_of(row))
        reference = str(row["gold"] if "gold" in row else required_field(row, "answer", where))
        number = read_number(reference) if "gold" in row else find_number(reference)
        if number is None:
            raise TaskDataError(f"{where}: no number in the reference answer {reference[-60:]!r}; write it after ####")
        return problem, self.gold_of(problem, render_number(number))


def problem_of(question: str, *, source_id: str | None = None) -> Problem:
    """Problem of a question. Its difficulty is its length in words. The paper groups by reasoning steps, but those are
    counted in reference solutions, and the length predicts accuracy at least as well (44 recorded models)."""
    words, difficulty = len(question.split()), f"{_SHORT_WORDS + 1}-{_LONG_WORDS} words"
    if words <= _SHORT_WORDS:
        difficulty = f"up to {_SHORT_WORDS} words"
    elif words > _LONG_WORDS:
        difficulty = f"over {_LONG_WORDS} words"
    return question_of(TASK, question, difficulty=difficulty, source_id=source_id)
