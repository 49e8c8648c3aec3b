"""Sources of questions: recorded files, or the package reasoning-gym."""

import functools
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from raydebm.errors import TaskDataError
from raydebm.identity import canonical_json, content_id, seed_for
from raydebm.tasks.base import required_field
from raydebm.tasks.libraries import LibraryError, library
from raydebm.tasks.sources import JSON_LINES, check_split, file_rows, local_file

log = logging.getLogger(__name__)

SPLITS = ("train", "test")
DEFAULT_SIZE = 100
"""Number of generated entries per data set, before they are divided into splits."""

SCORE_CPU_S, ENTRIES_CPU_S = 10.0, 120.0
"""Limits of one score, and of generating one data set."""

_GENERATE = re.compile(r"generate:(?P<names>[a-z0-9_]+(?:,[a-z0-9_]+)*)(?:\?(?P<settings>[a-z0-9_=&]*))?")
_FORM = "generate:countdown,graph_color?size=200&seed=1"
_FILE_NAME = re.compile(r"problems(?P<rest>.*)\.jsonl(?:\.gz)?")
_NO_ANSWER = ("None", "")


@dataclass(frozen=True, slots=True)
class LibraryEntry:
    """Entry of reasoning-gym behind a question, for its verifier."""

    dataset: str
    config: Mapping[str, Any]
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A row of a source."""

    where: str
    """File and line, or data set and index, for messages."""
    text: str
    answer: str | None
    """Reference answer. None if many answers are right."""
    dataset: str = ""
    category: str = ""
    source_id: str | None = None
    entry: LibraryEntry | None = None
    """Entry for the verifier. None if the question does not need or have one."""


def questions(split: str, source: str | None, *, seed: int) -> Iterator[Question]:
    """Questions of a source; its data sets take turns, so that a limit takes some of each.

    Args:
        split: ``"train"`` or ``"test"``. Generated questions are assigned to one of them by a digest of their text.
        source: ``"generate:<data set>,<data set>?size=100&seed=0"``, with an optional part from the question mark on;
            or a file; or a folder with a file named after the split.
        seed: seed of generated questions, unless the source has one.

    Raises:
        TaskDataError: the data is missing or malformed, or the package is required and missing.
    """
    check_split(split, SPLITS, task="reasoning_gym")
    if source is None or source.startswith("generate"):
        return _in_turns(_generated(split, source or "", seed=seed))
    names = [name.format(split=split) for name in JSON_LINES]
    file = local_file(source, names, otherwise=f"a .jsonl file, a folder of such files, or {_FORM}")
    return _in_turns(_recorded(file))


def _in_turns(source_questions: Iterable[Question]) -> Iterator[Question]:
    by_dataset: dict[str, list[Question]] = {}
    for question in source_questions:
        by_dataset.setdefault(question.dataset, []).append(question)
    turns = chain.from_iterable(zip_longest(*by_dataset.values()))
    makers = _Makers()
    return (makers.with_entry(question) for question in turns if question is not None)


def _generated(split: str, source: str, *, seed: int) -> Iterator[Question]:
    names, settings = _generator_of(source, seed=seed)
    for name in names:
        try:
            entries = entries_of(name, settings)
        except LibraryError as error:
            raise TaskDataError(f"cannot make questions of {name!r}: {error}") from error
        for index, (text, answer) in enumerate(entries.questions):
            if int(content_id("reasoning_gym split", text, length=8), 16) % len(SPLITS) == SPLITS.index(split):
                yield Question(
                    where=f"{name} entry {index}",
                    text=text,
                    answer=_reference(answer),
                    dataset=name,
                    category=entries.category,
                    entry=LibraryEntry(name, settings, index),
                )


def _generator_of(source: str, *, seed: int) -> tuple[tuple[str, ...], dict[str, int]]:
    """(data sets, settings) of ``generate:...``."""
    match = _GENERATE.fullmatch(source)
    parameters = dict(parse_qsl(match["settings"] or "", keep_blank_values=True)) if match else {}
    if (
        match is None
        or not set(parameters) <= {"size", "seed"}
        or not all(value.isdigit() for value in parameters.values())
    ):
        raise TaskDataError(f"unknown source {source!r}; write {_FORM}, where size and seed are whole numbers")
    names = tuple(dict.fromkeys(match["names"].split(",")))
    settings = {"size": DEFAULT_SIZE, "seed": seed_for("reasoning_gym", seed)}
    settings |= {name: int(value) for name, value in parameters.items()}
    if not 0 < settings["size"] <= 100_000:
        raise TaskDataError(f"source {source!r}: size must be from 1 to 100000")
    return names, settings


def _recorded(file: Path) -> Iterator[Question]:
    configs = _configs_beside(file)
    for where, row in file_rows(file):
        dataset = str(row.get("dataset") or "")
        answer = row["answer"] if "expected_answer" not in row and "answer" in row else None
        if answer is None:
            answer = required_field(row, "expected_answer", where)
        config = row.get("config") or configs.get(dataset)
        source_id = row.get("problem_id")
        yield Question(
            where=where,
            text=str(required_field(row, "question", where)),
            answer=_reference(answer),
            dataset=dataset,
            category=str(row.get("category") or ""),
            source_id=None if source_id is None else str(source_id),
            # Its index is looked up later, once the question is needed.
            entry=LibraryEntry(dataset, config, -1) if isinstance(config, Mapping) and dataset else None,
        )


def _reference(answer: Any) -> str | None:
    return None if answer is None or str(answer).strip() in _NO_ANSWER else str(answer)


def _configs_beside(file: Path) -> Mapping[str, Any]:
    """Settings of each data set, from ``configs_easy.json`` next to ``problems_easy.jsonl.gz``; empty without it.

    Raises:
        TaskDataError: the file is malformed.
    """
    match = _FILE_NAME.fullmatch(file.name)
    path = file.with_name(f"configs{match['rest']}.json") if match else None
    if path is None or not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TaskDataError(f"file {str(path)!r} cannot be read as JSON: {error}") from error
    configs = content.get("configs", content) if isinstance(content, Mapping) else None
    if not isinstance(configs, Mapping):
        raise TaskDataError(f"file {str(path)!r} must hold an object with the settings of each data set")
    return configs


@dataclass
class _Makers:
    """Finder of questions' entries. Data sets that cannot be generated are reported once."""

    _failed: set[str] = field(default_factory=set)

    def with_entry(self, question: Question) -> Question:
        """The question, with its verifier's entry if there is one."""
        wanted = question.entry
        if wanted is None:
            return question
        if wanted.index >= 0:
            return question
        index = self._indices(wanted).get(question.text.strip())
        return replace(question, entry=None if index is None else LibraryEntry(wanted.dataset, wanted.config, index))

    def _indices(self, wanted: LibraryEntry) -> Mapping[str, int]:
        if wanted.dataset in self._failed:
            return {}
        if not is_installed():
            self._fail("", "the package is not installed (pip install 'raydebm[reasoning-gym]')")
            return {}
        try:
            return _indices_of(wanted.dataset, canonical_json(dict(wanted.config)))
        except LibraryError as error:
            self._fail(wanted.dataset, str(error))
            return {}

    def _fail(self, dataset: str, reason: str) -> None:
        if dataset not in self._failed:
            named = f"questions of {dataset}" if dataset else "questions"
            log.warning("%s are judged by their expected answer, not by reasoning-gym's verifier: %s", named, reason)
        self._failed.add(dataset)


@functools.lru_cache(maxsize=512)
def _indices_of(dataset: str, config: str) -> Mapping[str, int]:
    """Index of each question of a data set. Cached, because both splits of a run need it.

    Raises:
        LibraryError: the data set cannot be generated.
    """
    entries = entries_of(dataset, json.loads(config))
    return {text.strip(): index for index, (text, _) in enumerate(entries.questions)}


# ---- the optional package reasoning-gym: its questions and its verifiers ---------------------------------------------


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of a data set, in order."""

    category: str
    questions: tuple[tuple[str, str], ...]
    """(question, answer)."""


@functools.cache
def is_installed() -> bool:
    """True if the package reasoning-gym can be imported."""
    return find_spec("reasoning_gym") is not None


def entries_of(dataset: str, config: Mapping[str, Any]) -> Entries:
    """Generate a data set.

    Raises:
        LibraryError: there is no such data set, it refuses the config, or it takes too long.
    """
    reply = library("reasoning-gym").ask({"entries": dataset, "config": dict(config)}, cpu_s=ENTRIES_CPU_S)
    return Entries(reply["category"], tuple((question, answer) for question, answer in reply["entries"]))


def score_of(dataset: str, config: Mapping[str, Any], index: int, *, question: str, answer: str) -> float:
    """Score in [0, 1] of the data set's verifier for an answer to one of its entries.

    Raises:
        LibraryError: it took too long or failed, or this version has another question at the index.
    """
    request = {"score": dataset, "config": dict(config), "index": index, "question": question, "answer": answer}
    return float(library("reasoning-gym").ask(request, cpu_s=SCORE_CPU_S)["score"])
