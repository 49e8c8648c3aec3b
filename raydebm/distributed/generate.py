"""Candidates of a run: every request answered, in one go or in waves, as one table in the order of the requests.

An answer comes from the journal, from a recorded pool, or from Ray Data (``candidate_blocks``). In waves the answers so
far say which problems need more (``decision.stopping.schedule``); the waves of all problems go in step.
"""

import asyncio
import contextlib
import logging
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ray

from raydebm.config import GeneratorConfig, Recipe
from raydebm.decision.stopping.wave_schedule import WaveSchedule
from raydebm.distributed.candidate_blocks import Setup, stream
from raydebm.distributed.label import gold_free_reports
from raydebm.distributed.vllm import beside_servers, running_endpoints, turns
from raydebm.errors import UnknownNameError
from raydebm.generators import Journal, Secret, check_keys, collect
from raydebm.generators.account import JournalAccount
from raydebm.generators.recorded import PoolGenerator, recorded_generators
from raydebm.generators.requests import highest_prices
from raydebm.generators.sink import CandidateSink, Placed, Progress
from raydebm.generators.tally import GenerationSummary, SavedSamples, Tally, check_enough
from raydebm.records import GenerationRequest, Problem
from raydebm.run.directory import RunDir

_LOG = logging.getLogger(__name__)


def generate(
    requests: Sequence[GenerationRequest],
    *,
    recipe: Recipe,
    run: RunDir,
    stage: str = "candidates",
    on_progress: Progress | None = None,
    problems: Iterable[Problem] = (),
    account: JournalAccount | None = None,
) -> GenerationSummary:
    """Answer all requests and write ``<run>/<stage>/candidates.parquet`` in their order, then the manifest.

    Ray is initialised by the caller. Answers found in the journal are reused. A request that occurs twice is answered
    once.

    Args:
        problems: lets recorded pools be joined by the source's own problem ids.
        account: the journal, and the run whose limit counts; None: ``<run>/<stage>/journal/``.

    Raises:
        MissingKeyError: an endpoint's key is not in the environment; nothing was sent.
        UnknownNameError: a request names a generator that the recipe lacks; nothing was sent.
        PoolError: too many requests failed; the answers stay in the journal.
        ResourceError: a vLLM server is to be started and cannot be, or it leaves no GPU to a local model that asks
            for one.
    """
    work = _Work(
        recipe=recipe,
        run=run,
        stage=stage,
        account=account or JournalAccount(run, (stage, "journal")),
        problems=tuple(problems),
        on_progress=on_progress,
    )
    with _answering(requests, work) as answering:
        answering.answer(answering.placed)
        return answering.finish()


def generate_in_waves(
    requests: Sequence[GenerationRequest],
    *,
    recipe: Recipe,
    run: RunDir,
    problems: Mapping[str, Problem],
    on_progress: Progress | None = None,
) -> GenerationSummary:
    """``generate`` for the first pass, by the sizes in ``generation.waves``; a problem whose answer is settled gets no
    further wave.

    What is in the journal is reused and decides as it did before, so that a run which goes on after it was killed sends
    what it would have sent and writes the same table. Requests that failed are sent again, and may then settle a
    problem earlier.

    Args:
        requests: every request that may be sent.
        problems: by problem id, to read answers.

    Raises:
        ConfigError: the recipe has no ``generation.waves``.
        PoolError: a request's problem is not among the problems, or as for ``generate``.
        MissingKeyError, UnknownNameError, ResourceError: as for ``generate``.
    """
    work = _Work(
        recipe=recipe,
        run=run,
        stage="candidates",
        account=JournalAccount(run, ("candidates", "journal")),
        problems=tuple(problems.values()),
        on_progress=on_progress,
    )
    with _answering(requests, work) as answering:
        by_id = {request.candidate_id: (position, request) for position, request in answering.placed}
        planned = [request for _, request in answering.placed]
        schedule = WaveSchedule(
            planned,
            waves=recipe.generation.waves or (),
            epsilon=recipe.generation.epsilon,
            prices=highest_prices(planned, recipe.generators),
        )
        while wave := schedule.next_wave():
            answering.answer([by_id[request.candidate_id] for request in wave])
            voting = [found for found in answering.sink.read_new() if not found.is_greedy]
            schedule.record(gold_free_reports(problems, voting, task=recipe.task))
            answering.sink.expect(len(planned) - len(schedule.unsent))
        return answering.finish(schedule)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What is to be made of which settings, where it goes, and what pays for it."""

    recipe: Recipe
    run: RunDir
    stage: str
    account: JournalAccount
    problems: tuple[Problem, ...]
    on_progress: Progress | None


@contextlib.contextmanager
def _answering(requests: Sequence[GenerationRequest], work: _Work) -> Iterator["_Answering"]:
    """Raises MissingKeyError and UnknownNameError as ``generate`` does. Servers end with the context."""
    placed = list(enumerate({request.candidate_id: request for request in requests}.values()))
    configs = _asked(work.recipe, placed)
    keys = check_keys(configs)
    with tempfile.TemporaryDirectory(prefix="raydebm-") as folder, contextlib.ExitStack() as servers:
        sink = CandidateSink(Path(folder), total=len(placed), on_progress=work.on_progress)
        yield _Answering(placed, work, configs=configs, keys=keys, sink=sink, servers=servers)


class _Answering:
    """Answers requests into one table; may be asked several times, as waves do."""

    def __init__(
        self,
        placed: list[Placed],
        work: _Work,
        *,
        configs: tuple[GeneratorConfig, ...],
        keys: dict[str, Secret],
        sink: CandidateSink,
        servers: contextlib.ExitStack,
    ) -> None:
        self.placed, self.sink = placed, sink
        self._work, self._configs, self._keys, self._servers = work, configs, keys, servers
        self._started = time.monotonic()
        self._journal = Journal(work.account.folder)
        self._recorded: tuple[PoolGenerator, ...] | None = None
        self._turn: tuple[GeneratorConfig, ...] = ()
        self._setup: tuple[Setup, float] | None = None

    def answer(self, placed: Sequence[Placed]) -> None:
        """Bring these requests' candidates into the table: from the journal, a recorded pool, or a generator."""
        placed = self._replay_recorded(self.sink.write_reused(placed, self._journal))
        if not placed:
            return
        num_gpus = _cluster_gpus()
        for group in turns(self._configs, num_gpus=num_gpus):
            names = {config.name for config in group}
            if mine := [(position, request) for position, request in placed if request.generator in names]:
                setup, left_gpus = self._reached(group, num_gpus=num_gpus)
                stream(mine, setup=setup, recipe=self._work.recipe, sink=self.sink, num_gpus=left_gpus)

    def finish(self, schedule: WaveSchedule | None = None) -> GenerationSummary:
        """Write the table and the manifest.

        Raises:
            PoolError: too many requests failed.
        """
        work, tally = self._work, self.sink.tally
        summary = tally.summary(
            seconds=time.monotonic() - self._started, saved=None if schedule is None else _saved(schedule, tally)
        )
        max_failed_frac = work.recipe.generation.max_failed_frac
        check_enough(summary, max_failed_frac=max_failed_frac, journal=work.account.folder)
        work.run.write_bytes(self.sink.assembled(), work.stage, "candidates.parquet")
        if summary.num_failed:
            _LOG.warning("%d of %d requests failed: %s", summary.num_failed, summary.num_requests, summary.errors)
        work.run.finish(work.stage, summary.facts())
        return summary

    def _replay_recorded(self, placed: Sequence[Placed]) -> list[Placed]:
        """Answer the requests to recorded pools here, which is a look-up; returns the others."""
        if self._recorded is None:
            self._recorded = tuple(recorded_generators(self._configs, problems=self._work.problems))
        for generator in self._recorded:
            mine = [(position, request) for position, request in placed if request.generator == generator.name]
            candidates = asyncio.run(collect(generator, [request for _, request in mine]))
            self.sink.write_candidates((position, found) for (position, _), found in zip(mine, candidates, strict=True))
        recorded = {generator.name for generator in self._recorded}
        return [(position, request) for position, request in placed if request.generator not in recorded]

    def _reached(self, group: tuple[GeneratorConfig, ...], *, num_gpus: float) -> tuple[Setup, float]:
        """What actors are made from, and the GPUs that are left to them. Servers are started when the first request
        needs them, and stay until another group has its turn."""
        if self._setup is None or self._turn != group:
            self._servers.close()
            configs, left_gpus = beside_servers(group, num_gpus=num_gpus)
            reachable = self._servers.enter_context(running_endpoints(configs, num_gpus=num_gpus))
            recipe, account = self._work.recipe, self._work.account
            setup = Setup(
                configs=reachable,
                keys=self._keys,
                journal=account.folder,
                max_usd=recipe.generation.max_usd,
                elsewhere_usd=account.elsewhere_usd(recipe),
                num_in_flight=recipe.generation.num_in_flight,
                threads=recipe.ray.threads_per_worker,
            )
            self._turn, self._setup = group, (setup, left_gpus)
        return self._setup


def _saved(schedule: WaveSchedule, tally: Tally) -> SavedSamples:
    unsent = Counter(request.generator for request in schedule.unsent)
    return tally.saved(unsent, num_problems=schedule.num_problems, num_settled=schedule.num_settled)


def _asked(recipe: Recipe, placed: Sequence[Placed]) -> tuple[GeneratorConfig, ...]:
    """The recipe's generators that some request names."""
    known = {config.name: config for config in recipe.generators}
    names = dict.fromkeys(request.generator for _, request in placed)
    for name in names:
        if name not in known:
            raise UnknownNameError("generator", name, known)
    return tuple(known[name] for name in names)


def _cluster_gpus() -> float:
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return float(resources.get("GPU", 0.0))
