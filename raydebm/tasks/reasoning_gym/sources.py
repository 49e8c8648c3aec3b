"""Sources of questions: recorded files, or the package reasoning-gym."""

import functools
import json
import logging
import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from raydebm.errors import TaskDataError
from raydebm.identity import canonical_json, content_id, seed_for
from raydebm.records import Gold, Problem
from raydebm.tasks.base import required_field
from raydebm.tasks.file_backed import question_of, source_id_of
from raydebm.tasks.libraries import LibraryError, library
from raydebm.tasks.sources import file_rows, local_file

log = logging.getLogger(__name__)

TASK = "reasoning_gym"
SPLITS = ("train", "test")
DEFAULT_SIZE = 100
"""Number of generated entries per data set, before they are divided into splits."""

SCORE_CPU_S, ENTRIES_CPU_S = 10.0, 120.0
"""Limits of CPU time for one score, and for generating one data set."""

_GENERATE = re.compile(r"generate:(?P<names>[a-z0-9_]+(?:,[a-z0-9_]+)*)(?:\?(?P<settings>[a-z0-9_=&]*))?")
_FORM = "generate:countdown,graph_color?size=200&seed=1"
_FILE_NAME = re.compile(r"problems(?P<rest>.*)\.jsonl(?:\.gz)?")
_NO_ANSWER = ("None", "")
_NOT_VERIFIED = "%s are judged by their expected answer, not by reasoning-gym's verifier: %s"

Pair = tuple[Problem, Gold]
_Row = tuple[Problem, Gold, Mapping[str, Any] | None]
"""A pair, and the settings of its data set if the index of the question in it must be looked up."""


def problem_of(text: str, *, dataset: str = "", category: str = "", source_id: str | None = None) -> Problem:
    """Problem of a question. Its kind is the data set; reports group by the category, such as ``"games"``."""
    return question_of(TASK, text, difficulty=category, kind=dataset, dataset=dataset, source_id=source_id)


def questions(split: str, source: str | None, *, seed: int) -> Iterator[Pair]:
    """Questions of a source (see ``ReasoningGym.pairs``) with gold. Data sets take turns, so that a limit takes some of
    each. Generated questions are assigned to a split by a digest of their text."""
    if source is None or source.startswith("generate"):
        rows = _generated(split, source or "", seed=seed)
    else:
        rows = _recorded(local_file(source, split, otherwise=f"a .jsonl file, a folder of such files, or {_FORM}"))
    by_dataset: dict[str, list[_Row]] = {}
    for row in rows:
        by_dataset.setdefault(row[0].kind, []).append(row)
    turns = [row for row in chain.from_iterable(zip_longest(*by_dataset.values())) if row is not None]
    if is_installed():
        return (_with_entry(*row) for row in turns)
    if any(config is not None for _, _, config in turns):
        log.warning(_NOT_VERIFIED, "questions", "the package is not installed (pip install 'raydebm[reasoning-gym]')")
    return ((problem, gold) for problem, gold, _ in turns)


def _generated(split: str, source: str, *, seed: int) -> Iterator[_Row]:
    names, settings = _generator_of(source, seed=seed)
    for name in names:
        try:
            category, entries = entries_of(name, settings)
        except LibraryError as error:
            raise TaskDataError(f"cannot make questions of {name!r}: {error}") from error
        for index, (text, answer) in enumerate(entries):
            if int(content_id("reasoning_gym split", text, length=8), 16) % len(SPLITS) == SPLITS.index(split):
                problem = problem_of(_filled(text, f"{name} entry {index}"), dataset=name, category=category)
                yield problem, _gold(problem, answer, entry=(settings, index)), None


def _filled(text: str, where: str) -> str:
    if not text.strip():
        raise TaskDataError(f"{where}: the question is empty")
    return text


def _gold(problem: Problem, answer: Any, *, entry: tuple[Mapping[str, Any], int] | None = None) -> Gold:
    """Gold with the reference answer (None without one) and, for the verifier, the question's entry in its data set."""
    value: dict[str, Any] = {"answer": None if answer is None or str(answer).strip() in _NO_ANSWER else str(answer)}
    if entry is not None:
        value["entry"] = {"dataset": problem.kind, "config": dict(entry[0]), "index": entry[1]}
    return Gold(task=TASK, problem_id=problem.problem_id, value=value)


def _generator_of(source: str, *, seed: int) -> tuple[tuple[str, ...], dict[str, int]]:
    """(data sets, settings) of a source ``generate:...``."""
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


def _recorded(file: Path) -> Iterator[_Row]:
    configs = _configs_beside(file)
    for where, row in file_rows(file):
        dataset = str(row.get("dataset") or "")
        answer = required_field(row, "expected_answer", where, "answer")
        config = row.get("config") or configs.get(dataset)
        problem = problem_of(
            _filled(str(required_field(row, "question", where)), where),
            dataset=dataset,
            category=str(row.get("category") or ""),
            source_id=source_id_of(row),
        )
        yield problem, _gold(problem, answer), config if isinstance(config, Mapping) and dataset else None


def _configs_beside(file: Path) -> Mapping[str, Any]:
    """Settings by data set, from for example ``configs_easy.json`` next to ``problems_easy.jsonl.gz``, if it exists."""
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
        raise TaskDataError(f"file {str(path)!r} must contain an object with the settings of each data set")
    return configs


def _with_entry(problem: Problem, gold: Gold, config: Mapping[str, Any] | None) -> Pair:
    """The pair; its gold has the verifier's entry if the data set has the question."""
    index = None if config is None else _indices_of(problem.kind, canonical_json(dict(config))).get(problem.prompt)
    if config is not None and index is not None:
        gold = _gold(problem, gold.value["answer"], entry=(config, index))
    return problem, gold


@functools.lru_cache(maxsize=512)
def _indices_of(dataset: str, config: str) -> Mapping[str, int]:
    """Index by question of a data set; empty, with a warning, if it cannot be generated. Cached, because every question
    of the data set is looked up."""
    try:
        _, entries = entries_of(dataset, json.loads(config))
    except LibraryError as error:
        log.warning(_NOT_VERIFIED, f"questions of {dataset}", error)
        return {}
    return {text.strip(): index for index, (text, _) in enumerate(entries)}


# ---- the optional package reasoning-gym: its questions and its verifiers ---------------------------------------------


@functools.cache
def is_installed() -> bool:
    """True if the package reasoning-gym can be imported."""
    return find_spec("reasoning_gym") is not None


def entries_of(dataset: str, config: Mapping[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    """(category, questions with answers in order) of a generated data set. LibraryError if it is unknown, refuses the
    config, or takes too long."""
    reply = library("reasoning-gym").ask({"entries": dataset, "config": dict(config)}, cpu_s=ENTRIES_CPU_S)
    return reply["category"], [(question, answer) for question, answer in reply["entries"]]


def score_of(dataset: str, config: Mapping[str, Any], index: int, *, question: str, answer: str) -> float:
    """Score in [0, 1] by the data set's verifier for an answer to one of its entries. LibraryError if it fails or takes
    too long, or if this version of the package has another question at the index."""
    request = {"score": dataset, "config": dict(config), "index": index, "question": question, "answer": answer}
    return float(library("reasoning-gym").ask(request, cpu_s=SCORE_CPU_S)["score"])
