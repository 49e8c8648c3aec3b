"""Reading of a recorded pool's file, for some or all of its models.

In:   raydebm's candidate Parquet, or JSON lines (plain or gzip); a folder means its ``candidates.parquet``.
Out:  one candidate per problem, model and sample, with thinking separated from the answer as in a reply.
Independent of: problems.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from raydebm.embedded import local_path
from raydebm.errors import PoolError, TaskDataError
from raydebm.generators.replies import split_reasoning
from raydebm.identity import content_id
from raydebm.records import Candidate, GenerationRequest, Message, well_formed
from raydebm.run.folder import Folder
from raydebm.run.tables import CANDIDATES
from raydebm.user_files import text_lines

log = logging.getLogger(__name__)

Pool = tuple[Sequence[Candidate], set[str]]
"""The candidates of the requested models, with the file's own problem ids, and the names of all models in the file.
Candidates differ in problem, model, pass, sample or greediness, or in later passes in the chat."""

_Sample = tuple[str, int, str]
"""Sort key of a model's samples: run, sample number, and the sample as text if it is not a number."""

TEXT_FIELDS = ("text",)
PARQUET = ".parquet"
"""Suffix of pools in raydebm's format; other files are read as JSON lines."""

_UNNUMBERED = -1
"""Sample number of a line with neither ``sample`` nor ``run``."""


def answers_chat(recorded: Candidate, messages: Sequence[Message], response_format: str | None = None) -> bool:
    """Whether the recorded candidate answers this chat: its id is the content id of its request."""
    request = GenerationRequest(
        task=recorded.task,
        problem_id=recorded.problem_id,
        generator=recorded.generator,
        messages=tuple(messages),
        sampling=recorded.sampling,
        seed=recorded.seed,
        pass_index=recorded.pass_index,
        sample_index=recorded.sample_index,
        response_format=response_format,
    )
    return request.candidate_id == recorded.candidate_id


def read_pool_file(name: str | Path, task: str, text_fields: Sequence[str], models: Sequence[str] | None) -> Pool:
    """Read the answers of these models, or of all if None, as candidates of a task.

    In JSON lines, the answer is in the first of ``text_fields`` that is present.

    Raises:
        TaskDataError: the file is missing, unreadable, or has no usable line.
    """
    path = local_path(str(name))
    if path.is_dir():
        path /= "candidates.parquet"
    if path.suffix == PARQUET:
        candidates, known = _read_parquet(path)
    else:
        candidates, known = _read_json_lines(path, task, text_fields, models)
    wanted = known if models is None else models
    return [_apart_from_thinking(candidate) for candidate in candidates if candidate.generator in wanted], known


def _apart_from_thinking(candidate: Candidate) -> Candidate:
    """The candidate with thinking separated from its answer, as in a sampled one."""
    if candidate.text is None or candidate.reasoning is not None:
        return candidate
    text, reasoning = split_reasoning(candidate.text)
    if reasoning is None:
        return candidate
    if text.strip():
        return replace(candidate, text=text, reasoning=reasoning)
    why = "nothing follows </think>" if "</think>" in candidate.text else "<think> is never closed"
    return replace(candidate, text=None, reasoning=reasoning, error=f"recorded without an answer: {why}")


def _read_parquet(path: Path) -> Pool:
    try:
        candidates = Folder(str(path.parent)).read_records(CANDIDATES, path.name)
    except PoolError as error:
        raise TaskDataError(str(error)) from error
    if not candidates:
        raise TaskDataError(f"recorded pool {str(path)!r} is empty")
    first: dict[tuple[object, ...], Candidate] = {}
    for one in candidates:
        chat = one.candidate_id if one.pass_index > 1 else ""
        key = (one.problem_id, one.generator, one.pass_index, one.sample_index, one.is_greedy, chat)
        first.setdefault(key, one)
    return list(first.values()), {candidate.generator for candidate in candidates}


def _read_json_lines(path: Path, task: str, text_fields: Sequence[str], models: Sequence[str] | None) -> Pool:
    entries, known = _entries(path, text_fields, models)
    sample_of = _sample_indices((model, sample) for _, model, sample in entries)
    candidates = [
        Candidate(
            candidate_id=content_id("recorded", task, problem_id, model, list(sample), text),
            task=task,
            problem_id=problem_id,
            generator=model,
            text=text,
            error=error,
            sample_index=sample_of[model, sample],
        )
        for (problem_id, model, sample), (text, error) in entries.items()
    ]
    return candidates, known


def _sample_indices(samples: Iterable[tuple[str, _Sample]]) -> dict[tuple[str, _Sample], int]:
    """A sample index for every sample of every model, the same for all problems.

    Plain sample numbers are kept. Named runs or samples are numbered in the order of their names.
    """
    by_model: dict[str, set[_Sample]] = {}
    for model, sample in samples:
        by_model.setdefault(model, set()).add(sample)
    indices: dict[tuple[str, _Sample], int] = {}
    for model, own in by_model.items():
        is_plain = not any(run or name for run, _, name in own)
        for count, sample in enumerate(sorted(own)):
            indices[model, sample] = sample[1] if is_plain else count
    return indices


_Texts = dict[tuple[str, str, _Sample], tuple[str | None, str | None]]
"""Text and error by problem, model and sample."""


def _entries(path: Path, text_fields: Sequence[str], models: Sequence[str] | None) -> tuple[_Texts, set[str]]:
    """The texts, and the names of all models."""
    entries: _Texts = {}
    known: set[str] = set()
    bad: list[str] = []
    repeated = 0
    unnumbered: Counter[tuple[str, str]] = Counter()
    for number, line in enumerate(text_lines(path, what="recorded pool"), start=1):
        if not line.strip():
            continue
        try:
            row = _row(line)
        except (ValueError, RecursionError) as error:  # RecursionError: thousands of nested brackets
            bad.append(f"{path}:{number}: {error}")
            continue
        known.add(row["model"])
        if models is not None and row["model"] not in models:
            continue
        problem_id, model, sample = row["problem_id"], row["model"], _sample_of(row)
        if sample[1] == _UNNUMBERED:
            sample = ("", unnumbered[problem_id, model], "")
            unnumbered[problem_id, model] += 1
        repeated += (problem_id, model, sample) in entries
        entries.setdefault((problem_id, model, sample), _answer(row, text_fields))
    if not known:
        first = f"; the first bad line is {bad[0]}" if bad else ""
        raise TaskDataError(
            f"recorded pool {str(path)!r} has no usable line{first}; "
            f"expected JSON objects with problem_id, model, {' or '.join(text_fields)} and optionally sample or run"
        )
    if bad:
        log.warning("%d lines of %s cannot be used; the first: %s", len(bad), path, bad[0])
    if repeated:
        log.warning("%d lines of %s repeat an earlier problem, model and sample; the first counts", repeated, path)
    return entries, known


def _row(line: str) -> dict[str, Any]:
    """Parse one line.

    Raises:
        ValueError: the line has no problem or no model, or is of a later pass.
    """
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError(f"must be a JSON object, got {type(row).__name__}")
    for name in ("problem_id", "model"):
        if not isinstance(row.get(name), str) or not row[name]:
            raise ValueError(f"field {name!r} must be a non-empty text, got {row.get(name)!r}")
        row[name] = well_formed(row[name])
    if row.get("pass_index", 1) != 1:
        raise ValueError(f"replies of later passes are read only from Parquet, got pass {row['pass_index']!r}")
    return row


def _answer(row: Mapping[str, Any], text_fields: Sequence[str]) -> tuple[str | None, str | None]:
    """(text, None) of a line, or (None, reason) if it has no text."""
    text = next((content for name in text_fields if (content := _text(row.get(name))) is not None), None)
    if text is not None:
        return text, None
    seen = ", ".join(f"field {name!r} is {row.get(name)!r:.80}" for name in text_fields)
    return None, well_formed(f"recorded without text: {seen}")


def _text(value: Any) -> str | None:
    """An answer as text. Lists and objects are written as JSON, with keys in their order."""
    if isinstance(value, list | dict) and value:
        return well_formed(json.dumps(value, ensure_ascii=False))
    return well_formed(value) if isinstance(value, str) else None


def _sample_of(row: Mapping[str, Any]) -> _Sample:
    run = "" if row.get("run") is None else well_formed(str(row["run"]))
    sample = row.get("sample")
    if sample is None:
        return (run, 0 if run else _UNNUMBERED, "")
    if isinstance(sample, int) and not isinstance(sample, bool) and sample >= 0:
        return (run, sample, "")
    return (run, 0, well_formed(str(sample)))
