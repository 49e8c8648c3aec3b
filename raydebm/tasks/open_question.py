"""Any question with a short answer: for what belongs to no other task.

Answers are compared by their normalised words, so that votes count; nothing about them is checked. Two wordings of one
answer that share no words ("NYC", "New York") stay two answers, which makes agreement look lower than it is; a service
may ask a model about them (``decision.evidence.equality``).
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, ClassVar

from raydebm.errors import TaskDataError
from raydebm.records import Gold, Problem
from raydebm.tasks.answers import answer_phrases, boxed, hash_answers, json_answer, read_number, render_number
from raydebm.tasks.base import Answer, TaskDefaults, required_field
from raydebm.tasks.file_backed import Pairs, ReferenceTask, question_of, source_id_of, typed_question
from raydebm.tasks.sources import JSON_LINES, file_rows, local_file

TASK = "any"
MAX_ANSWER_CHARS = 300
"""A longer text is an essay and no short answer: no two of them would ever be equal."""

_MARKS = r"\s*_`\"'\u201c\u201d\u2018\u2019\u00ab\u00bb\u2026,;:!?~"
_AROUND = re.compile(rf"\A(?:[{_MARKS}#>]|\.(?!\d))+|[{_MARKS}.]+\Z")
"""Marks around an answer. Signs, units, brackets and the ends of "C++" and "C#" belong to it."""
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


class OpenQuestion(ReferenceTask):
    """The task. An answer is its text as given, without what stands around it."""

    name: ClassVar[str] = TASK
    defaults: ClassVar[TaskDefaults] = TaskDefaults(max_length=4096, batch_size=32, patience=2)
    instructions: ClassVar[str] = (
        "Answer the question. Think step by step where that helps. Then end with one last line that holds four hash "
        "signs and the answer alone, in as few words as possible: #### Paris"
    )

    def pairs(self, split: str, source: str | None, seed: int) -> Pairs:
        """A ``.jsonl`` or ``.jsonl.gz`` file with the fields question and answer, and optionally problem_id, or a
        folder of such files, as for GSM8K. There is no published data set."""
        if source is None:
            raise TaskDataError(
                f"task {TASK} has no data set of its own; give a .jsonl file with question and answer as the source"
            )
        file = local_file(source, [name.format(split=split) for name in JSON_LINES], otherwise="a .jsonl file")
        return (self._pair(row, where) for where, row in file_rows(file))

    def problem_from_text(self, text: str) -> Problem:
        """The question as typed; TaskDataError when there is none in the text."""
        return question_of(TASK, typed_question(text, "a question needs words"))

    def parse(self, problem: Problem, text: str) -> str | None:
        """The marked answer: after ``####``, in an ``"answer"`` field, in a box, or after "the answer is"; the last of
        a kind. None where nothing is marked, or what is marked is longer than ``MAX_ANSWER_CHARS``."""
        marked = [mark.text for mark in hash_answers(text)]
        for phrase in (
            marked[-1] if marked else None,
            json_answer(text),
            boxed(text),
            next(answer_phrases(text), None),
        ):
            if phrase is not None and (answer := _AROUND.sub("", " ".join(phrase.split()))):
                return answer if len(answer) <= MAX_ANSWER_CHARS else None
        return None

    def vote_key(self, problem: Problem, answer: Answer) -> str:
        """Numbers by their value; words without case, accents of width, articles and punctuation around them."""
        return normalised(str(answer))

    def is_right(self, reference: str, answer: str) -> bool:
        """Whether both are the same after normalisation."""
        return normalised(reference) == normalised(answer)

    def _pair(self, row: Mapping[str, Any], where: str) -> tuple[Problem, Gold]:
        problem = question_of(TASK, str(required_field(row, "question", where)), source_id=source_id_of(row))
        return problem, self.gold_of(problem, str(required_field(row, "answer", where)))


def normalised(answer: str) -> str:
    """The form in which two answers are the same: "The Eiffel tower." is "eiffel tower", "$1,080" is "1080"."""
    plain = unicodedata.normalize("NFKC", answer)
    if plain[:1].isdigit() or plain[:1] in "-+$€£.":
        number = read_number(plain)
        if number is not None and not re.search(r"[^\W\d_]|%", plain):
            return render_number(number)
    words = _AROUND.sub("", " ".join(_ARTICLE.sub(" ", plain.casefold()).split()))
    return words or plain.casefold().strip()
