"""Reasoning Gym: short questions of about a hundred kinds, each made by a program that can also check answers.

Answers are judged by the verifiers of the package reasoning-gym, which is optional, or else by comparing them with the
expected answer.
"""

import json
from functools import lru_cache
from typing import Any, ClassVar

from raydebm.errors import TaskDataError
from raydebm.identity import canonical_json
from raydebm.records import Gold, Problem, Verdict
from raydebm.tasks.base import Answer, Judgement, TaskDefaults
from raydebm.tasks.file_backed import FileTask, Pairs, question_of, typed_question
from raydebm.tasks.reasoning_gym.answers import CLOSE, OPEN, find_answer, normal_form
from raydebm.tasks.reasoning_gym.library import LibraryError, library
from raydebm.tasks.reasoning_gym.sources import Question, questions

__all__ = ["ReasoningGym", "problem_of"]

TASK = "reasoning_gym"

FULL_SCORE = 0.999
"""A verifier's score from which an answer is right; some of them compare numbers within a tolerance."""


class ReasoningGym(FileTask):
    """The task. An answer is the text between ``<answer>`` and ``</answer>``."""

    name: ClassVar[str] = TASK
    defaults: ClassVar[TaskDefaults] = TaskDefaults(
        max_length=2048, batch_size=32, patience=2, learning_rate=5e-5, lambda_=1.0, max_tokens=2048
    )
    instructions: ClassVar[str] = (
        "Given a problem, your task is to answer the question by thinking step-by-step in a clear and specific "
        "manner.\n"
        "Once you have thought about the reasoning process, provide the answer in the following format:\n"
        f"{OPEN}answer here{CLOSE}\n"
        "Do not explain your reasoning inside the answer tags, provide only the final answer. When an example is "
        "provided, you should strictly follow the format of the output/answer in that example."
    )
    """What the package's own evaluations ask."""

    def pairs(self, split: str, source: str | None, seed: int) -> Pairs:
        """``"generate:<data set>,<data set>?size=100&seed=0"`` for questions that the package makes (by default 100
        entries of each data set, with the run's seed); else a ``.jsonl`` or ``.jsonl.gz`` file with the fields question
        and expected_answer, and optionally dataset, category, problem_id and config (the settings of
        ``create_dataset``; else those of the data set in ``configs<name>.json`` next to ``problems<name>.jsonl``); else
        a folder with a file of the split's name.

        The data sets of the source take turns. A file may hold one part for both splits (``id_range`` of a recipe
        splits it).
        """
        return map(_problem_and_gold, questions(split, source, seed=seed))

    def problem_from_text(self, text: str) -> Problem:
        """The question as typed.

        Raises:
            TaskDataError: there is no question in the text.
        """
        return problem_of(typed_question(text, "a question needs words or numbers"))

    def parse(self, problem: Problem, text: str) -> str | None:
        """What stands in the last complete ``<answer>`` part; None where there is none, or it is empty."""
        return find_answer(text)

    def render(self, problem: Problem, answer: Answer) -> str:
        """The answer between its tags."""
        return f"{OPEN}{answer}{CLOSE}"

    def vote_key(self, problem: Problem, answer: Answer) -> str:
        """The answer in its normal form."""
        return normal_form(answer)

    def judge(self, problem: Problem, gold: Gold, text: str) -> Judgement:
        """By the package's verifier, else by the expected answer."""
        answer = self.parse(problem, text)
        if answer is None:
            return Judgement(verdict=Verdict.INCORRECT, reason="no answer between the tags")
        if "entry" in gold.value:
            return _verified(problem, gold.value["entry"], answer)
        expected = gold.value["answer"]
        if expected is None:
            reason = "the question has no reference answer, and its verifier is not at hand"
            return Judgement(verdict=Verdict.UNLABELED, reason=reason)
        is_same = normal_form(answer) == normal_form(expected)
        return _judgement(is_same, f"answered {answer[:60]!r}, not {expected[:60]!r}")


def _judgement(is_correct: bool, reason: str) -> Judgement:
    if is_correct:
        return Judgement(verdict=Verdict.CORRECT)
    return Judgement(verdict=Verdict.INCORRECT, reason=reason)


def _verified(problem: Problem, entry: Any, answer: str) -> Judgement:
    try:
        score = _score(entry["dataset"], canonical_json(entry["config"]), entry["index"], problem.prompt, answer)
    except LibraryError as error:
        return Judgement(verdict=Verdict.UNLABELED, reason=f"the verifier of {entry['dataset']} failed: {error}")
    return _judgement(score >= FULL_SCORE, f"scored {score:g} by the verifier of {entry['dataset']}")


@lru_cache(maxsize=1024)
def _score(dataset: str, config: str, index: int, question: str, answer: str) -> float:
    """Cached: candidates of a problem often give the same answer, and some verifiers take a second."""
    return library().score(dataset, json.loads(config), index, question=question, answer=answer)


def problem_of(text: str, *, dataset: str = "", category: str = "", source_id: str | None = None) -> Problem:
    """The problem of a question; its id is made of the text alone.

    Args:
        text: the question; surrounding white space is no part of it.
        dataset: the data set that it comes from, or "".
        category: the group of data sets, such as ``"games"``, by which reports break results down; or "".
        source_id: the problem's name in its source, by which recorded pools join.
    """
    return question_of(TASK, text, difficulty=category, dataset=dataset, source_id=source_id)


def _problem_and_gold(question: Question) -> tuple[Problem, Gold]:
    if not question.text.strip():
        raise TaskDataError(f"{question.where}: the question is empty")
    problem = problem_of(
        question.text, dataset=question.dataset, category=question.category, source_id=question.source_id
    )
    value: dict[str, Any] = {"answer": question.answer}
    if question.entry is not None:
        entry = question.entry
        value["entry"] = {"dataset": entry.dataset, "config": dict(entry.config), "index": entry.index}
    return problem, Gold(task=TASK, problem_id=problem.problem_id, value=value)
