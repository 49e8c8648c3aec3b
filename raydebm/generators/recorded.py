"""Recorded pools: completions that somebody drew before, read from a file and never generated.

In:   raydebm's candidate Parquet, or JSON lines (plain or gzip) with the fields ``problem_id``, ``model``, ``text`` (or
      other fields that hold the answer, as text or as JSON) and optionally ``sample`` (integer) and ``run`` (name of a
      repeated run); lines with neither are counted as they come.
      A folder stands for its ``candidates.parquet``.
Out:  candidates, either all at once (``import_pool``) or request by request (``PoolGenerator``).

``problem_id`` in the file is either ours or the source's own (``Problem.data["source_id"]``). How recorded completions
were sampled is unknown: imported ones carry the default ``Sampling()`` and count as samples, not as greedy. Thinking
that stands in a recorded text is told apart from its answer, as it is in a reply.
"""

import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from raydebm.config import GeneratorConfig, RecordedGenerator
from raydebm.embedded import local_path
from raydebm.errors import PoolError, TaskDataError, UnknownNameError
from raydebm.generators.logprobs import LogProbs
from raydebm.generators.replies import split_reasoning
from raydebm.generators.requests import TokenUsage, answered, unanswered
from raydebm.identity import content_id
from raydebm.records import Candidate, GenerationRequest, Problem, well_formed
from raydebm.run.folder import Folder
from raydebm.run.tables import CANDIDATES

log = logging.getLogger(__name__)

_Draw = tuple[str, int, str]
"""Orders the draws of a model: run, sample, and the sample as written where it is no integer."""

TEXT_FIELDS = ("text",)
PARQUET = ".parquet"
"""How the name of a pool of our own candidates ends; everything else is read as JSON lines."""

_UNNUMBERED = -1
"""The sample of a line that has neither ``sample`` nor ``run``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordedEntry:
    """One usable line of a JSON-lines pool. ``text`` is None exactly when ``error`` says why."""

    problem_id: str
    model: str
    draw: _Draw
    text: str | None
    error: str | None


def import_pool(
    path: str | Path,
    *,
    task: str,
    problems: Iterable[Problem],
    models: Sequence[str] | None = None,
    names: Mapping[str, str] | None = None,
    text_fields: Sequence[str] = TEXT_FIELDS,
) -> list[Candidate]:
    """The recorded candidates of the given problems: by problem, then model, then sample.

    Lines of other problems are passed over. A line with a problem and a model but without usable text becomes a
    candidate with ``error``. Lines that say neither are counted in a warning. Of several lines for the same problem,
    model and sample the first counts.

    Args:
        path: the pool file.
        task: the task's name, as stored with each candidate.
        problems: the problems wanted.
        models: the models wanted, in this order; None: all, by name.
        names: generator names for models that shall be called otherwise.
        text_fields: of JSON lines, where the answer stands; the first field that has one counts.

    Raises:
        TaskDataError: the file is missing, unreadable, or has no usable line.
        UnknownNameError: ``models`` has a name that is not in the file.
        PoolError: the file has no answer for any of the problems.
    """
    problem_ids = _joinable(problems)
    entries = _read(path, task, text_fields)
    by_key = {(source_id, model, rank): candidate for source_id, model, rank, candidate in entries}
    wanted = _wanted_models({model for _, model, _ in by_key}, models)
    position = {problem_id: number for number, problem_id in enumerate(dict.fromkeys(problem_ids.values()))}
    joined = [
        (position[problem_ids[source_id]], wanted[model], rank, model, candidate)
        for (source_id, model, rank), candidate in by_key.items()
        if source_id in problem_ids and model in wanted
    ]
    if not joined:
        example = next(iter(by_key))[0]
        raise PoolError(
            f"recorded pool {str(path)!r} has no answer for any of the {len(position)} problems; its problem ids look "
            f"like {example!r}, and must be ours or the source_id of a problem"
        )
    ordered = sorted(joined, key=lambda entry: entry[:3])
    renamed = names or {}
    ids = tuple(position)
    return [
        replace(candidate, problem_id=ids[place], generator=renamed.get(model, model))
        for place, _, _, model, candidate in ordered
    ]


class PoolGenerator:
    """Replays one model of a pool file as if it were asked.

    A request is answered by the recording of its problem, pass and sample index; one that was not recorded becomes a
    candidate with ``error``. Replies carry the request's identity and sampling settings, whatever was used when they
    were recorded, and a reply to other feedback is one all the same. A greedy request is answered only by a recording
    that is known to be greedy.
    """

    def __init__(
        self, config: RecordedGenerator, *, problems: Iterable[Problem] = (), pool: "_Entries | None" = None
    ) -> None:
        """Read the pool.

        Args:
            config: which file and which of its models.
            problems: needed where the file's problem ids are the source's own.
            pool: what the file holds, where it has been read already.

        Raises:
            TaskDataError: the file is missing, unreadable, or has no usable line.
            UnknownNameError: the file has no such model.
        """
        self.name, self.path = config.name, config.pool
        self._model, self._keeps_logprobs = config.model, config.logprobs
        source_ids = {problem_id: source_id for source_id, problem_id in _joinable(problems).items()}
        self._source_ids = source_ids
        entries = _read(config.pool, "", config.text_fields) if pool is None else pool
        _wanted_models({model for _, model, _, _ in entries}, (config.model,))
        self._recorded: dict[tuple[str, bool, int, int], Candidate] = {}
        for source_id, model, rank, candidate in entries:
            if model == config.model:
                key = (source_id, candidate.is_greedy, candidate.pass_index, rank[1])
                self._recorded.setdefault(key, candidate)
        self._answered = {
            source_id for (source_id, *_), candidate in self._recorded.items() if candidate.text is not None
        }

    async def stream(self, requests: Sequence[GenerationRequest]) -> AsyncIterator[Candidate]:
        """Answer from the pool, in the order of the requests."""
        for request in requests:
            yield self.reply(request)

    async def aclose(self) -> None:
        """Nothing is open: the pool was read when this was made."""

    def answers(self, problem_id: str) -> bool:
        """Whether any answer to the problem was recorded, text and all."""
        return not self._answered.isdisjoint((problem_id, self._source_ids.get(problem_id, problem_id)))

    def has_answer(self, request: GenerationRequest) -> bool:
        """Whether the request's answer was recorded, text and all."""
        recorded = self._find(request)
        return recorded is not None and recorded.text is not None

    def reply(self, request: GenerationRequest) -> Candidate:
        """The recorded answer to one request; one that was not recorded carries ``error``."""
        recorded = self._find(request)
        if recorded is None:
            # Problem, pass and sample stand in the row; without them equal reasons can be counted.
            return unanswered(
                request,
                f"not recorded: pool {self.path!r} has no {'greedy ' if request.sampling.is_greedy else ''}answer of "
                f"{self._model!r} for this problem, pass and sample",
            )
        if recorded.text is None:
            return unanswered(request, recorded.error or "recorded without text")
        return answered(
            request,
            recorded.text,
            usage=TokenUsage(prompt_tokens=recorded.prompt_tokens, completion_tokens=recorded.completion_tokens),
            reasoning=recorded.reasoning,
            finish_reason=recorded.finish_reason,
            logprobs=self._logprobs(recorded),
        )

    def _logprobs(self, recorded: Candidate) -> LogProbs | None:
        if not self._keeps_logprobs or recorded.logprob is None or recorded.worst_logprob is None:
            return None
        return LogProbs(recorded.logprob, recorded.worst_logprob)

    def _find(self, request: GenerationRequest) -> Candidate | None:
        draw = (request.sampling.is_greedy, request.pass_index, request.sample_index)
        ids = (request.problem_id, self._source_ids.get(request.problem_id, request.problem_id))
        return next(
            (self._recorded[(problem_id, *draw)] for problem_id in ids if (problem_id, *draw) in self._recorded), None
        )


def recorded_generators(configs: Iterable[GeneratorConfig], *, problems: Iterable[Problem]) -> Iterator[PoolGenerator]:
    """The generators of those entries that name a recorded pool. A file is read once, however many models it holds.

    Raises:
        TaskDataError: a file is missing, unreadable, or has no usable line.
        UnknownNameError: a file has no such model.
    """
    problems = tuple(problems)
    by_file: dict[tuple[str, tuple[str, ...]], list[RecordedGenerator]] = {}
    for config in configs:
        if isinstance(config, RecordedGenerator):
            by_file.setdefault((config.pool, tuple(config.text_fields)), []).append(config)
    for (path, text_fields), entries in by_file.items():
        pool = _read(path, "", text_fields)
        for config in entries:
            yield PoolGenerator(config, problems=problems, pool=pool)


def _joinable(problems: Iterable[Problem]) -> dict[str, str]:
    """Our problem id for every id by which a file may name a problem; the source's own name comes last."""
    ids: dict[str, str] = {}
    for problem in problems:
        ids[problem.problem_id] = problem.problem_id
        if "source_id" in problem.data:
            ids[str(problem.data["source_id"])] = problem.problem_id
    return ids


def _wanted_models(known: set[str], models: Sequence[str] | None) -> dict[str, int]:
    """Position of each wanted model."""
    for model in models or ():
        if model not in known:
            raise UnknownNameError("model of the recorded pool", model, known)
    return {model: number for number, model in enumerate(sorted(known) if models is None else dict.fromkeys(models))}


_Rank = tuple[int, int, int]
"""(pass, sample index, 1 when greedy)."""

_Entries = Sequence[tuple[str, str, _Rank, Candidate]]
"""(problem id as in the file, model, rank, candidate) of everything usable in a file, each key once."""


def _read(name: str | Path, task: str, text_fields: Sequence[str]) -> _Entries:
    path = local_path(str(name))
    if path.is_dir():
        path /= "candidates.parquet"
    entries = _read_parquet(path) if path.suffix == PARQUET else _read_json_lines(path, task, text_fields)
    return [(source_id, model, rank, _apart_from_thinking(candidate)) for source_id, model, rank, candidate in entries]


def _apart_from_thinking(candidate: Candidate) -> Candidate:
    """The candidate as if its text had just been drawn."""
    if candidate.text is None or candidate.reasoning is not None:
        return candidate
    text, reasoning = split_reasoning(candidate.text)
    if reasoning is None:
        return candidate
    if text.strip():
        return replace(candidate, text=text, reasoning=reasoning)
    why = "nothing follows </think>" if "</think>" in candidate.text else "<think> is never closed"
    return replace(candidate, text=None, reasoning=reasoning, error=f"recorded without an answer: {why}")


def _read_parquet(path: Path) -> _Entries:
    try:
        candidates = Folder(str(path.parent)).read_records(CANDIDATES, path.name)
    except PoolError as error:
        raise TaskDataError(str(error)) from error
    if not candidates:
        raise TaskDataError(f"recorded pool {str(path)!r} is empty")
    by_key: dict[tuple[str, str, _Rank], Candidate] = {}
    for candidate in candidates:
        rank = (candidate.pass_index, candidate.sample_index, int(candidate.is_greedy))
        by_key.setdefault((candidate.problem_id, candidate.generator, rank), candidate)
    return [(*key, candidate) for key, candidate in by_key.items()]


def _read_json_lines(path: Path, task: str, text_fields: Sequence[str]) -> Iterator[tuple[str, str, _Rank, Candidate]]:
    entries = _entries(path, text_fields)
    sample_of = _sample_indices(entries.values())
    for entry in entries.values():
        sample = sample_of[entry.model, entry.draw]
        candidate = Candidate(
            candidate_id=content_id("recorded", task, entry.problem_id, entry.model, list(entry.draw), entry.text),
            task=task,
            problem_id=entry.problem_id,
            generator=entry.model,
            text=entry.text,
            error=entry.error,
            sample_index=sample,
        )
        yield entry.problem_id, entry.model, (1, sample, 0), candidate


def _sample_indices(entries: Iterable[_RecordedEntry]) -> dict[tuple[str, _Draw], int]:
    """A sample index for every draw of every model, the same for all problems.

    Plain sample numbers stay as they are; where runs or samples have names, draws are counted in the names' order.
    """
    draws: dict[str, set[_Draw]] = {}
    for entry in entries:
        draws.setdefault(entry.model, set()).add(entry.draw)
    indices: dict[tuple[str, _Draw], int] = {}
    for model, of_model in draws.items():
        plain = not any(run or name for run, _, name in of_model)
        for count, draw in enumerate(sorted(of_model)):
            indices[model, draw] = draw[1] if plain else count
    return indices


def _entries(path: Path, text_fields: Sequence[str]) -> dict[tuple[str, str, _Draw], _RecordedEntry]:
    entries: dict[tuple[str, str, _Draw], _RecordedEntry] = {}
    bad: list[str] = []
    repeated = 0
    unnumbered: Counter[tuple[str, str]] = Counter()
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            entry = _entry(line, text_fields)
        except (ValueError, RecursionError) as error:  # RecursionError: thousands of brackets
            bad.append(f"{path}:{number}: {error}")
            continue
        if entry.draw[1] == _UNNUMBERED:
            entry = replace(entry, draw=("", unnumbered[entry.problem_id, entry.model], ""))
            unnumbered[entry.problem_id, entry.model] += 1
        key = (entry.problem_id, entry.model, entry.draw)
        repeated += key in entries
        entries.setdefault(key, entry)
    if not entries:
        first = f"; the first bad line is {bad[0]}" if bad else ""
        raise TaskDataError(
            f"recorded pool {str(path)!r} has no usable line{first}; "
            f"expected JSON objects with problem_id, model, {' or '.join(text_fields)} and optionally sample or run"
        )
    if bad:
        log.warning("%d lines of %s cannot be used; the first: %s", len(bad), path, bad[0])
    if repeated:
        log.warning("%d lines of %s repeat an earlier problem, model and sample; the first counts", repeated, path)
    return entries


def _lines(path: Path) -> list[str]:
    try:
        with pa.input_stream(str(path), compression="detect") as stream:
            content: str = stream.read().decode("utf-8")
    except FileNotFoundError as error:
        raise TaskDataError(f"recorded pool {str(path)!r} does not exist") from error
    except (OSError, UnicodeDecodeError) as error:
        raise TaskDataError(f"recorded pool {str(path)!r} cannot be read as text: {error}") from error
    # Not splitlines(): completions may hold U+2028 and the like, which JSON leaves unescaped.
    return content.split("\n")


def _entry(line: str, text_fields: Sequence[str]) -> _RecordedEntry:
    """One line.

    Raises:
        ValueError: the line does not say which problem and model it belongs to.
    """
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError(f"must be a JSON object, got {type(row).__name__}")
    row = {name: well_formed(value) if isinstance(value, str) else value for name, value in row.items()}
    for name in ("problem_id", "model"):
        if not isinstance(row.get(name), str) or not row[name]:
            raise ValueError(f"field {name!r} must be a non-empty text, got {row.get(name)!r}")
    texts = (_text(row.get(name)) for name in text_fields)
    text = next((content for content in texts if content is not None), None)
    seen = ", ".join(f"field {name!r} is {row.get(name)!r:.80}" for name in text_fields)
    return _RecordedEntry(
        problem_id=row["problem_id"],
        model=row["model"],
        draw=_draw(row),
        text=text,
        error=None if text is not None else f"recorded without text: {seen}",
    )


def _text(value: Any) -> str | None:
    """An answer as text: lists and objects as JSON, in the order in which they stand."""
    if isinstance(value, list | dict) and value:
        return well_formed(json.dumps(value, ensure_ascii=False))
    return value if isinstance(value, str) else None


def _draw(row: Mapping[str, Any]) -> _Draw:
    run = "" if row.get("run") is None else str(row["run"])
    sample = row.get("sample")
    if sample is None:
        return (run, 0 if run else _UNNUMBERED, "")
    if isinstance(sample, int) and not isinstance(sample, bool) and sample >= 0:
        return (run, sample, "")
    return (run, 0, str(sample))
