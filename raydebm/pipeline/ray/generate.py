"""Candidates of a run: answers to all requests, at once or in waves, in one table in the order of the requests.

An answer comes from the journal, a recorded pool, or Ray Data (``candidate_blocks``). Requests are processed in
windows, so that neither they nor their answers are in memory together. In waves, the answers so far decide which
problems need more (``decision.stopping.wave_schedule``); all problems have the same wave at the same time, and
the schedule stores the requests.
"""

import contextlib
import logging
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import ray

from raydebm.config import GeneratorConfig, Recipe
from raydebm.decision.stopping.wave_schedule import WaveSchedule
from raydebm.errors import UnknownNameError
from raydebm.generators import Journal, Secret, check_keys
from raydebm.generators.account import JournalAccount
from raydebm.generators.disk_index import DiskIndex
from raydebm.generators.endpoint.vllm import check_server, running, turns
from raydebm.generators.recorded import PoolGenerator, recorded_generators
from raydebm.generators.requests import highest_prices
from raydebm.generators.sink import CandidateSink, Placed, Progress
from raydebm.generators.tally import GenerationSummary, SavedSamples, Tally, check_enough
from raydebm.pipeline.ray.candidate_blocks import WINDOW_REQUESTS, GroupSpools, Setup, stream
from raydebm.pipeline.ray.label import gold_free_reports
from raydebm.records import GenerationRequest, Problem
from raydebm.run.directory import RunDir
from raydebm.run.folder import Many
from raydebm.run.spool import Spool
from raydebm.run.tables import CANDIDATES

_LOG = logging.getLogger(__name__)
_SPOOL = "spool"
"""Folder of waiting requests, in the stage."""


def generate(
    requests: Many[GenerationRequest],
    *,
    recipe: Recipe,
    run: RunDir,
    stage: str = "candidates",
    on_progress: Progress | None = None,
    problems: Iterable[Problem] = (),
    account: JournalAccount | None = None,
) -> GenerationSummary:
    """Answer all requests and write ``<run>/<stage>/candidates.parquet`` in their order, then the manifest.

    Ray must be initialised. Answers in the journal are reused. Equal requests are answered once.

    Args:
        problems: problems for joining recorded pools by the source's own ids.
        account: the journal, and the run with the limit. Default: ``<run>/<stage>/journal/``.

    Raises:
        MissingKeyError: an endpoint's key is not in the environment; nothing was sent.
        UnknownNameError: a request names a generator that the recipe lacks; nothing was sent.
        PoolError: too many requests failed; the answers are in the journal.
        ResourceError: a vLLM server cannot be started.
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
        answering.answer(_placed(requests))
        if answering.sink.total != answering.sink.tally.num_rows:  # some requests were equal
            answering.sink.expect(answering.sink.tally.num_rows)
        return answering.finish()


def generate_in_waves(
    requests: Many[GenerationRequest],
    *,
    recipe: Recipe,
    run: RunDir,
    problems: Mapping[str, Problem],
    on_progress: Progress | None = None,
) -> GenerationSummary:
    """``generate`` for the first pass in waves of ``generation.waves``; settled problems get no further wave.

    Answers in the journal are reused and decide as before, so a resumed run sends the same requests and writes the same
    table. Failed requests are sent again, and may then settle a problem earlier.

    Args:
        requests: every request that may be sent.
        problems: problems by problem id, for parsing answers.

    Raises:
        ConfigError: the recipe has no ``generation.waves``.
        PoolError: a request names an unknown problem, or see ``generate``.
        MissingKeyError, UnknownNameError, ResourceError: see ``generate``.
    """
    work = _Work(
        recipe=recipe,
        run=run,
        stage="candidates",
        account=JournalAccount(run, ("candidates", "journal")),
        problems=tuple(problems.values()),
        on_progress=on_progress,
    )
    with _answering(requests, work, reads_new=True) as answering:
        by_id = {request.candidate_id: (position, request) for position, request in _placed(requests)}
        planned = [request for _, request in by_id.values()]
        schedule = WaveSchedule(
            planned,
            waves=recipe.generation.waves or (),
            prices=highest_prices(planned, recipe.generators),
        )
        while wave := schedule.next_wave():
            answering.answer([by_id[request.candidate_id] for request in wave])
            voting = [candidate for candidate in answering.sink.read_new() if not candidate.is_greedy]
            schedule.record(gold_free_reports(problems, voting, recipe=recipe))
            answering.sink.expect(len(planned) - len(schedule.unsent))
        return answering.finish(schedule)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """Settings, destination and account of one call of ``generate``."""

    recipe: Recipe
    run: RunDir
    stage: str
    account: JournalAccount
    problems: tuple[Problem, ...]
    on_progress: Progress | None


def _placed(requests: Iterable[GenerationRequest]) -> Iterator[Placed]:
    """Each distinct request with its position."""
    known = DiskIndex()
    distinct = (request for request in requests if known.add(request.candidate_id))
    return enumerate(distinct)


@contextlib.contextmanager
def _answering(requests: Many[GenerationRequest], work: _Work, *, reads_new: bool = False) -> Iterator["_Answering"]:
    """Check generators and keys, raising as ``generate`` does. Servers stop with the context."""
    configs = _generators_with_requests(work.recipe, requests)
    keys = check_keys(configs)
    with tempfile.TemporaryDirectory(prefix="raydebm-") as folder, contextlib.ExitStack() as servers:
        sink = CandidateSink(Path(folder), total=len(requests), on_progress=work.on_progress, reads_new=reads_new)
        try:
            yield _Answering(work, configs=configs, keys=keys, sink=sink, servers=servers)
        finally:
            work.run.remove(work.stage, _SPOOL)


class _Answering:
    """Connection of requests to one table of candidates. May be called repeatedly, as for waves."""

    def __init__(
        self,
        work: _Work,
        *,
        configs: tuple[GeneratorConfig, ...],
        keys: dict[str, Secret],
        sink: CandidateSink,
        servers: contextlib.ExitStack,
    ) -> None:
        self.sink = sink
        self._work, self._configs, self._keys, self._servers = work, configs, keys, servers
        self._started = time.monotonic()
        self._journal = Journal(work.account.folder)
        self._recorded: tuple[PoolGenerator, ...] | None = None
        self._turn: tuple[GeneratorConfig, ...] = ()
        self._setup: Setup | None = None

    def answer(self, placed: Iterable[Placed]) -> None:
        """Add these requests' candidates to the table: from the journal, a recorded pool, or a generator."""
        num_gpus = _cluster_gpus()
        groups = [(group, self._spools(group, f"{number}")) for number, group in enumerate(turns(self._configs))]
        spools_of = {name: spools for _, spools in groups for name in spools.names}
        placed = iter(placed)
        while block := list(islice(placed, WINDOW_REQUESTS)):
            for missing in self._replay_recorded(self.sink.write_reused(block, self._journal)):
                spools_of[missing[1].generator].add(missing)
        for _, spools in groups:
            spools.flush()
        waiting = [(group, spools) for group, spools in groups if spools.num_requests]
        for group, _ in waiting:  # before anything is sent
            check_server(group[0])
        waiting.sort(key=lambda entry: entry[0] != self._turn)  # first the group whose servers still run
        for group, spools in waiting:
            setup = self._reached(group)
            stream(spools, setup=setup, generation=self._work.recipe.generation, sink=self.sink, num_gpus=num_gpus)

    def _spools(self, group: tuple[GeneratorConfig, ...], name: str) -> GroupSpools:
        """Empty spools for the requests to a group of generators."""
        work = self._work
        return GroupSpools(
            group,
            work.recipe.generation,
            lambda kind: Spool(work.run, work.stage, _SPOOL, f"{name}-{kind}"),
            total=self.sink.total,
        )

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
        with work.run.open_table(CANDIDATES, work.stage, "candidates.parquet") as table:
            for rows in self.sink.tables():
                table.write(rows)
        if summary.num_failed:
            _LOG.warning("%d of %d requests failed: %s", summary.num_failed, summary.num_requests, summary.errors)
        work.run.finish(work.stage, summary.facts())
        return summary

    def _replay_recorded(self, placed: Sequence[Placed]) -> list[Placed]:
        """Answer requests to recorded pools by look-up; returns the others."""
        if self._recorded is None:
            self._recorded = tuple(recorded_generators(self._configs, problems=self._work.problems))
        for generator in self._recorded:
            own = [(position, request) for position, request in placed if request.generator == generator.name]
            self.sink.write_candidates((position, generator.reply(request)) for position, request in own)
        recorded = {generator.name for generator in self._recorded}
        return [(position, request) for position, request in placed if request.generator not in recorded]

    def _reached(self, group: tuple[GeneratorConfig, ...]) -> Setup:
        """Arguments of the actors. Servers start with the first request that needs them, and run until another group is
        next."""
        if self._setup is None or self._turn != group:
            self._servers.close()
            host = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]  # actors on other nodes must reach it
            reachable = tuple(self._servers.enter_context(running(config, host=host)) for config in group)
            recipe, account = self._work.recipe, self._work.account
            self._turn = group
            self._setup = Setup(
                configs=reachable,
                keys=self._keys,
                journal=account.folder,
                max_usd=recipe.generation.max_usd,
                elsewhere_usd=account.elsewhere_usd(recipe),
                num_in_flight=recipe.generation.num_in_flight,
                threads=recipe.ray.threads_per_worker,
            )
        return self._setup


def _saved(schedule: WaveSchedule, tally: Tally) -> SavedSamples:
    unsent = Counter(request.generator for request in schedule.unsent)
    return tally.saved(unsent, num_problems=schedule.num_problems, num_settled=schedule.num_settled)


def _generators_with_requests(recipe: Recipe, requests: Iterable[GenerationRequest]) -> tuple[GeneratorConfig, ...]:
    """The recipe's generators with requests, in the recipe's order."""
    known = {config.name: config for config in recipe.generators}
    names = dict.fromkeys(request.generator for request in requests)
    for name in names:
        if name not in known:
            raise UnknownNameError("generator", name, known)
    return tuple(config for config in recipe.generators if config.name in names)


def _cluster_gpus() -> float:
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return float(resources.get("GPU", 0.0))
