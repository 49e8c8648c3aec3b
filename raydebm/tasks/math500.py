r"""MATH-500: competition problems with one answer in ``\boxed{}`` (paper section 4.1; a target of transfer only).

The paper has no constraint for this task. Answers are compared as mathematics, not as text.
"""

import logging
import re
from collections.abc import Iterator
from itertools import chain
from typing import ClassVar

from raydebm.errors import TaskDataError
from raydebm.records import Gold, Problem
from raydebm.tasks.answers import boxed
from raydebm.tasks.base import Answer, Judgement, TaskDefaults, required_field, unlabeled
from raydebm.tasks.file_backed import Pairs, ReferenceTask, question_of, source_id_of, typed_question
from raydebm.tasks.formulas import clean, find_latex, is_equivalent, normal_form
from raydebm.tasks.libraries import LibraryError
from raydebm.tasks.sources import JSON_LINES, Located, Row, hub_rows, split_rows

TASK = "math500"
HUB_DATASET = "HuggingFaceH4/MATH-500"
HUB_TRAIN_DATASET = "EleutherAI/hendrycks_math"
SUBJECTS = (
    "algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory", "prealgebra",
    "precalculus",
)  # fmt: skip
"""Configurations of the data set with the training problems."""

_FILES = {
    "train": ("problems_math_train.jsonl.gz", *JSON_LINES),
    "test": ("problems_math500.jsonl.gz", *JSON_LINES),
}
_LOG = logging.getLogger(__name__)
_LEVEL = re.compile(r"[1-5]")


class Math500(ReferenceTask):
    r"""The task. An answer is the LaTeX text inside the box, such as ``\frac{1}{2}`` or ``(3, 4]``."""

    name: ClassVar[str] = TASK
    defaults: ClassVar[TaskDefaults] = TaskDefaults(max_length=8192, batch_size=32, patience=2, max_tokens=2048)
    instructions: ClassVar[str] = (
        "Solve the problem. Think step by step and check your work. "
        "Then end with the final answer alone in a box: \\boxed{42}"
    )

    def pairs(self, split: str, source: str | None, seed: int) -> Pairs:
        r"""Problems with gold.

        Sources: None for the published data sets (MATH-500 for ``"test"``, the training problems of MATH for
        ``"train"``); ``"hub:<name>"`` for another one with that split; a data file with the fields question or problem;
        gold, answer or solution (in which the last ``\boxed{}`` counts); and optionally level, subject or type, and
        problem_id or unique_id; a folder with ``problems_math500.jsonl.gz`` or ``problems_math_train.jsonl.gz``, or
        with files named after the split.

        Rows with an empty reference answer and no solution (4 of the 7,474 recorded training problems) are skipped.
        Rows with a solution without a box are skipped with a warning.
        """
        return filter(None, (self._pair(row, where) for where, row in _rows(split, source)))

    def problem_from_text(self, text: str) -> Problem:
        return problem_of(typed_question(text, "a problem needs words or a formula"))

    def parse(self, problem: Problem, text: str) -> str | None:
        return find_latex(text)

    def render(self, problem: Problem, answer: Answer) -> str:
        return f"\\boxed{{{answer}}}"

    def vote_key(self, problem: Problem, answer: Answer) -> str:
        """Normal form of the answer. Answers with equal keys are equivalent; those with different keys may be, too."""
        return normal_form(answer)

    def is_right(self, reference: str, answer: str) -> bool:
        return is_equivalent(reference, answer)

    def judge(self, problem: Problem, gold: Gold, text: str) -> Judgement:
        """Correct if the answer is equivalent to gold; unlabeled if this cannot be decided within the limits."""
        try:
            return super().judge(problem, gold, text)
        except LibraryError as error:
            return unlabeled(f"{str(self.parse(problem, text))[:60]!r} against {gold.value['answer']!r}: {error}")

    def _pair(self, row: Row, where: str) -> tuple[Problem, Gold] | None:
        reference = _reference(row, where)
        if reference is None:
            return None
        level = _LEVEL.search(str(row.get("level") or ""))
        problem = problem_of(
            str(required_field(row, "question", where, "problem")),
            level=level[0] if level else "",
            subject=str(row.get("subject") or row.get("type") or ""),
            source_id=source_id_of(row, "problem_id", "unique_id"),
        )
        answer = clean(reference)
        if answer is None:
            raise TaskDataError(
                f"{where}: no reference answer in {reference[-60:]!r}; give it as gold, answer or solution"
            )
        return problem, self.gold_of(problem, answer)


def problem_of(question: str, *, level: str = "", subject: str = "", source_id: str | None = None) -> Problem:
    """Problem of a question, with its level ("1" to "5") and subject if known; its kind is both."""
    difficulty = f"level {level}" if level else ""
    kind = ", ".join(filter(None, [subject, difficulty])) if subject else ""
    return question_of(TASK, question, difficulty=difficulty, kind=kind, subject=subject, source_id=source_id)


def _reference(row: Row, where: str) -> str | None:
    """The reference answer; None for a row to skip: an empty answer without a solution, or a solution without a box."""
    for name in ("gold", "answer"):
        if row.get(name) not in (None, ""):
            return str(row[name])
    if not row.get("solution") and ("gold" in row or "answer" in row):
        return None
    reference = boxed(str(required_field(row, "solution", where)))
    if reference is None:
        _LOG.warning("%s: row skipped, because its solution has no \\boxed{} with the answer", where)
    return reference


def _rows(split: str, source: str | None) -> Iterator[Located]:
    if source is None and split == "train":
        return chain.from_iterable(hub_rows(HUB_TRAIN_DATASET, subject, split=split) for subject in SUBJECTS)
    dataset = HUB_DATASET if split == "test" else HUB_TRAIN_DATASET
    return split_rows(split, source, dataset=dataset, names=_FILES[split])
