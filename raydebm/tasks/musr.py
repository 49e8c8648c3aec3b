"""MuSR: a long story, a question about it, and numbered choices (paper section 4.1).

Three subsets: murder mysteries (250 problems), object placements (256), team allocation (250). Of the 756 problems, 605
are for training and 151 for testing. The paper has no constraint for this task.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from string import ascii_uppercase
from typing import Any, ClassVar

from raydebm.errors import TaskDataError
from raydebm.identity import content_id
from raydebm.records import Gold, Problem
from raydebm.tasks.base import TaskDefaults, required_field
from raydebm.tasks.choices import Choices, bare, single
from raydebm.tasks.file_backed import Pairs, ReferenceTask, question_of, source_id_of
from raydebm.tasks.sources import (
    JSON_LINES,
    Located,
    Row,
    distinct,
    file_rows,
    hub_name,
    hub_rows,
    record_lookup,
    written_value,
)

TASK = "musr"
HUB_DATASET = "TAUR-Lab/MuSR"
SUBSETS = ("murder_mysteries", "object_placements", "team_allocation")
"""Splits on the hub, and names of the files in the data set's repository."""

NUM_PROBLEMS, NUM_TEST = 756, 151
_SPLIT_SEED = 0
_DATA_SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".csv", ".parquet")

_SUBSET_OF_QUESTION = {
    "who is the most likely murderer": "murder mysteries",
    "which location is the most likely place": "object placements",
    "how would you uniquely allocate": "team allocation",
}
"""Subset by words in its questions."""

_CHOICE_LINE = re.compile(r"\s*\(?(\d{1,2}|[A-Z])(?:[.):]|\s-)\s+(\S.*)")
_CONCLUSION = re.compile(
    r"\b(?:most likely\b[^.!?]{0,60}? is|it was|so,? it(?:'s| is)"
    r"|would (?:first |most likely )?look(?: first)?(?: in| on| at| inside| under)?)\s",
    re.IGNORECASE,
)
_RULED_OUT = re.compile(r",\s(?:and\s)?not\b[^,;]*\Z")


class Musr(ReferenceTask):
    """The task. An answer is the number of a choice, from 1, as text: ``"2"``."""

    name: ClassVar[str] = TASK
    defaults: ClassVar[TaskDefaults] = TaskDefaults(max_length=4096, batch_size=8, patience=2)
    instructions: ClassVar[str] = (
        "Read the story and answer the question about it. The story does not state the answer: combine the facts that "
        "it gives, step by step, and weigh every choice. Then end with one last line that holds four hash signs and "
        "the number of your choice alone: #### 2"
    )
    gold_key: ClassVar[str] = "choice"
    nothing: ClassVar[str] = "no single choice in the text"

    def pairs(self, split: str, source: str | None, seed: int) -> Pairs:
        """Problems with gold.

        Sources: None or ``"hub:TAUR-Lab/MuSR"`` for the published data set; ``"hub:<name>"`` for another one; a data
        file with the fields narrative (or context), question, choices and answer_index; a folder of such files, which
        are read as one set unless one is named after the split.

        The published data has no train and test parts, so a source is divided by story (``choose_tests``): no story is
        in both parts, and a fifth of the problems (151 of 756) are for testing. A file named after the split, such as
        ``train.jsonl``, is not divided.
        """
        rows, is_split_already = _rows(split, source)
        pairs = list(distinct(_problem_and_gold(self, row, where) for where, row in rows))
        if not is_split_already:
            tests = choose_tests([problem for problem, _ in pairs])
            pairs = [pair for pair in pairs if (pair[0].problem_id in tests) == (split == "test")]
        return iter(pairs)

    def problem_from_text(self, text: str) -> Problem:
        """Parse a story with its question and choices: at least two numbered or lettered lines at the end."""
        prompt = text.strip()
        choices = _choices_at_end(prompt)
        if len(choices) < 2:
            raise TaskDataError(
                f"no choices at the end of {prompt[-60:]!r}; end the text with one choice per line: 1. ... and 2. ..."
            )
        return _problem(prompt, choices)

    def parse(self, problem: Problem, text: str) -> str | None:
        """Number of the selected choice, by the marks of ``Choices.find``; None if none or several are selected.

        A choice is named by its number, letter or text. A last line in free words must name a single choice, or
        conclude with one.
        """
        texts = problem.data["choices"]
        numbers = [str(number) for number in range(1, len(texts) + 1)]
        labels = {**dict(zip(numbers, numbers, strict=True)), **dict(zip(ascii_uppercase, numbers, strict=False))}
        choices = Choices(labels, dict(zip(texts, numbers, strict=True)))

        def concluded(line: str) -> str | None:
            """The only choice after the last "the most likely murderer is", "it was" or "she would look in"; without
            such a phrase, the only choice in the line."""
            *before, said = _CONCLUSION.split(line)
            return single(choices.named_in(_RULED_OUT.sub("", said) if before else line))

        return choices.find(text, in_free_words=concluded)


def problem_of(narrative: str, question: str, choices: Sequence[str], *, source_id: str | None = None) -> Problem:
    """Problem of a story, a question and its choices, at least two and all different. Its id depends only on these
    texts."""
    numbered = "\n".join(f"{number}. {choice}" for number, choice in enumerate(choices, start=1))
    return _problem(f"{narrative.strip()}\n\n{question.strip()}\n\n{numbered}", choices, source_id=source_id)


def choose_tests(problems: Iterable[Problem]) -> set[str]:
    """Ids of the test problems; they do not depend on the order of the problems.

    Stories are ranked by a seeded hash, and each is taken if all its problems fit. Problems share a story if their
    texts begin with the same line: an object placement has up to four questions, and murder mysteries are in pairs that
    differ in the murderer. Stories with one question fill the rest, so exactly 151 of 756 problems are for testing.
    """
    stories: dict[str, list[str]] = {}
    for problem in problems:
        stories.setdefault(problem.prompt.split("\n", 1)[0].strip(), []).append(problem.problem_id)
    room = round(sum(map(len, stories.values())) * NUM_TEST / NUM_PROBLEMS)
    chosen: set[str] = set()
    for story in sorted(stories, key=lambda story: content_id(TASK, "split", _SPLIT_SEED, story)):
        if len(chosen) + len(stories[story]) <= room:
            chosen.update(stories[story])
    return chosen


def _problem(prompt: str, choices: Sequence[str], *, source_id: str | None = None) -> Problem:
    question = prompt.lower()
    subset = next((name for words, name in _SUBSET_OF_QUESTION.items() if words in question), "")
    return question_of(TASK, prompt, difficulty=subset, choices=list(choices), source_id=source_id)


def _choices_at_end(prompt: str) -> list[str]:
    """Texts of the last lines if they are numbered 1, 2, ... or lettered A, B, ...; else empty."""
    labels: list[str] = []
    choices: list[str] = []
    for line in reversed(prompt.split("\n")):
        match = _CHOICE_LINE.fullmatch(line.rstrip())
        if match is None or labels[:1] in (["1"], ["A"]):
            break
        labels.insert(0, match[1])
        choices.insert(0, match[2])
    in_order = [[str(index + 1), chr(ord("A") + index)] for index in range(len(labels))]
    is_list = any(labels == list(known) for known in zip(*in_order, strict=True))
    return choices if is_list else []


def _rows(split: str, source: str | None) -> tuple[Iterator[Located], bool]:
    """The rows, and True if all of them belong to the split."""
    dataset = hub_name(source, HUB_DATASET)
    if dataset is not None:
        parts = (hub_rows(dataset, split=subset) for subset in SUBSETS)
        return chain.from_iterable(parts), False
    files, is_split_already = _files(Path(str(source)), split)
    return chain.from_iterable(map(file_rows, files)), is_split_already


def _files(path: Path, split: str) -> tuple[list[Path], bool]:
    names = [name.format(split=split) for name in JSON_LINES]
    if path.is_file():
        return [path], path.name in names
    record_lookup(path, [*names, *(f"*{suffix}" for suffix in _DATA_SUFFIXES)])
    own = [path / name for name in names if (path / name).is_file()]
    if own:
        return own[:1], True
    files = sorted(file for file in path.glob("*") if file.name.endswith(_DATA_SUFFIXES) and "pool" not in file.name)
    if not files:
        raise TaskDataError(
            f"source {str(path)!r} is neither a file nor a folder with data files ({', '.join(_DATA_SUFFIXES)}); "
            f"give one, or hub:{HUB_DATASET}"
        )
    return files, False


def _problem_and_gold(task: ReferenceTask, row: Row, where: str) -> tuple[Problem, Gold]:
    narrative = required_field(row, "narrative", where, "context")
    question = required_field(row, "question", where)
    choices = _read_choices(required_field(row, "choices", where), where)
    index = _read_index(required_field(row, "answer_index", where), len(choices), where)
    named = row.get("answer_choice")
    if named is not None and bare(str(named)) != bare(choices[index]):
        raise TaskDataError(f"{where}: answer_index {index} is {choices[index]!r}, but answer_choice is {named!r}")
    problem = problem_of(str(narrative), str(question), choices, source_id=source_id_of(row))
    return problem, task.gold_of(problem, str(index + 1))


def _read_choices(value: Any, where: str) -> list[str]:
    value = written_value(value)
    if not isinstance(value, list | tuple):
        raise TaskDataError(f"{where}: choices must be a list, got {type(value).__name__}")
    choices = [" ".join(str(choice).split()) for choice in value]
    if len(choices) < 2 or len(set(map(bare, choices))) < len(choices) or not all(choices):
        raise TaskDataError(f"{where}: choices must be at least two, all different, got {choices}")
    return choices


def _read_index(value: Any, num_choices: int, where: str) -> int:
    try:
        index = int(value)
    except (TypeError, ValueError):
        index = -1
    if not 0 <= index < num_choices:
        raise TaskDataError(f"{where}: answer_index must be from 0 to {num_choices - 1}, got {value!r}")
    return index
