"""Recorded pools: existing completions, read from a file.

In:   raydebm's candidate Parquet, or JSON lines (plain or gzip) with the fields ``problem_id``, ``model``, ``text`` (or
      other fields for the answer, as text or JSON) and optionally ``sample`` (integer) and ``run`` (name of a repeated
      run). Lines with neither are numbered in order. A folder means its ``candidates.parquet``.
Out:  candidates, either all at once (``import_pool``) or request by request (``PoolGenerator``).

``problem_id`` in the file is raydebm's id or the source's (``Problem.data["source_id"]``). The sampling settings of
JSON lines are unknown: imported ones have the default ``Sampling()`` and count as samples, not as greedy. Thinking in a
recorded text is separated from its answer, as in a reply.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from raydebm.config import GeneratorConfig, RecordedGenerator
from raydebm.errors import PoolError, UnknownNameError
from raydebm.generators.pool_files import TEXT_FIELDS, Pool, answers_chat, read_pool_file
from raydebm.generators.requests import TokenUsage, answered, unanswered
from raydebm.records import Candidate, GenerationRequest, Problem


def import_pool(
    path: str | Path, *, task: str, problems: Iterable[Problem], text_fields: Sequence[str] = TEXT_FIELDS
) -> list[Candidate]:
    """The recorded candidates of the given problems, sorted by problem, model and sample.

    Lines of other problems are skipped. A line with a problem and a model but without usable text becomes a candidate
    with ``error``. Lines without a problem or a model are counted in a warning. The first of several lines with
    the same problem, model and sample is used, and the first of several ``text_fields`` of a line.

    Raises:
        TaskDataError: the file is missing, unreadable, or has no usable line.
        PoolError: the file has no answer for any of the problems.
    """
    own_ids = _run_ids(problems)
    place = {problem_id: number for number, problem_id in enumerate(dict.fromkeys(own_ids.values()))}
    recorded, _ = read_pool_file(path, task, text_fields, None)
    found = [replace(one, problem_id=own_ids[one.problem_id]) for one in recorded if one.problem_id in own_ids]
    if not found:
        raise PoolError(
            f"recorded pool {str(path)!r} has no answer for any of the {len(place)} problems; its problem ids look "
            f"like {recorded[0].problem_id!r}, and must be raydebm's own or the source_id of a problem"
        )
    return sorted(
        found, key=lambda one: (place[one.problem_id], one.generator, one.pass_index, one.sample_index, one.is_greedy)
    )


class PoolGenerator:
    """Generator that replays one model of a pool file.

    A request is answered by the recording of its problem, pass and sample index, which in a later pass must be for the
    same chat. A greedy request needs a greedy recording. Without a recording the candidate has ``error``. Candidates
    have the identity and sampling settings of the request, not of the recording.
    """

    def __init__(
        self, config: RecordedGenerator, *, problems: Iterable[Problem] = (), pool: Pool | None = None
    ) -> None:
        """Read the pool, unless the model's part of it is given. ``problems`` is needed if the file has the source's
        ids.

        Raises:
            TaskDataError: the file is missing, unreadable, or has no usable line.
            UnknownNameError: the model is not in the file.
        """
        self.name, self.path = config.name, config.pool
        self._model = config.model
        self._source_ids = {problem_id: source_id for source_id, problem_id in _run_ids(problems).items()}
        found, known = read_pool_file(config.pool, "", config.text_fields, (config.model,)) if pool is None else pool
        if config.model not in known:
            raise UnknownNameError("model of the recorded pool", config.model, known)
        self._recorded: dict[tuple[str, bool, int, int], list[Candidate]] = {}
        for one in found:
            key = (one.problem_id, one.is_greedy, one.pass_index, one.sample_index)
            self._recorded.setdefault(key, []).append(one)
        self._answered = {one.problem_id for one in found if one.text is not None}

    async def stream(self, requests: Sequence[GenerationRequest]) -> AsyncIterator[Candidate]:
        """Answer from the pool, in the order of the requests."""
        for request in requests:
            yield self.reply(request)

    async def aclose(self) -> None:
        """Nothing to close: the pool was read at construction."""

    def answers(self, problem_id: str) -> bool:
        """Whether the pool has a text for the problem."""
        return not self._answered.isdisjoint((problem_id, self._source_ids.get(problem_id, problem_id)))

    def has_answer(self, request: GenerationRequest) -> bool:
        """Whether the pool has a text for the request."""
        recorded = self._find(request)
        return recorded is not None and recorded.text is not None

    def reply(self, request: GenerationRequest) -> Candidate:
        """The recorded answer to one request, or a candidate with ``error``."""
        recorded = self._find(request)
        if recorded is None:
            return unanswered(request, self.missing_reason(request))
        if recorded.text is None:
            return unanswered(request, recorded.error or "recorded without text")
        usage = TokenUsage(prompt_tokens=recorded.prompt_tokens, completion_tokens=recorded.completion_tokens)
        reply = answered(
            request, recorded.text, usage=usage, reasoning=recorded.reasoning, finish_reason=recorded.finish_reason
        )
        return replace(reply, logprob=recorded.logprob, worst_logprob=recorded.worst_logprob)

    def missing_reason(self, request: GenerationRequest) -> str:
        """Reason why the request has no recorded answer."""
        # Omits problem, pass and sample, which the row has, so that equal reasons can be counted.
        has = "an" if self._candidates(request) else "no greedy" if request.sampling.is_greedy else "no"
        other = ", but after other feedback" if has == "an" else ""
        answer = f"{has} answer of {self._model!r} for this problem, pass and sample{other}"
        return f"not recorded: pool {self.path!r} has {answer}"

    def _candidates(self, request: GenerationRequest) -> list[Candidate]:
        """All recordings of the request's problem, pass and sample, for any chat."""
        sample = (request.sampling.is_greedy, request.pass_index, request.sample_index)
        ids = dict.fromkeys((request.problem_id, self._source_ids.get(request.problem_id, request.problem_id)))
        return [candidate for problem_id in ids for candidate in self._recorded.get((problem_id, *sample), ())]

    def _find(self, request: GenerationRequest) -> Candidate | None:
        for candidate in self._candidates(request):
            if request.pass_index == 1 or answers_chat(candidate, request.messages, request.response_format):
                return candidate
        return None


def recorded_generators(configs: Iterable[GeneratorConfig], *, problems: Iterable[Problem]) -> Iterator[PoolGenerator]:
    """Generators for the recorded pools among the configs. A file is read once for all its models.

    Raises:
        TaskDataError: a file is missing, unreadable, or has no usable line.
        UnknownNameError: a model is not in its file.
    """
    problems = tuple(problems)
    by_file: dict[tuple[str, tuple[str, ...]], list[RecordedGenerator]] = {}
    for config in configs:
        if isinstance(config, RecordedGenerator):
            by_file.setdefault((config.pool, tuple(config.text_fields)), []).append(config)
    for (path, text_fields), entries in by_file.items():
        found, known = read_pool_file(path, "", text_fields, [config.model for config in entries])
        of_model: dict[str, list[Candidate]] = {}
        for one in found:
            of_model.setdefault(one.generator, []).append(one)
        for config in entries:
            yield PoolGenerator(config, problems=problems, pool=(of_model.get(config.model, ()), known))


def _run_ids(problems: Iterable[Problem]) -> dict[str, str]:
    """raydebm's problem id by every id that a file may use for the problem."""
    ids: dict[str, str] = {}
    for problem in problems:
        ids[problem.problem_id] = problem.problem_id
        if "source_id" in problem.data:
            ids[str(problem.data["source_id"])] = problem.problem_id
    return ids
