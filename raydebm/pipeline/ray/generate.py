"""Candidates of a run: answers to all requests, at once or in waves, in one table in the order of the requests.

An answer comes from the journal, a recorded pool, or Ray Data (``candidate_blocks``), which stores it in the journal.
Requests are processed in windows, so that only a part of them and of their answers is in memory. In waves, the answers
so far decide which problems need more (``decision.stopping.wave_schedule``); all problems have the same wave at the
same time, and all requests are in memory.
"""

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import ray

from raydebm.config import GeneratorConfig, Recipe
from raydebm.decision.stopping.wave_schedule import WaveSchedule
from raydebm.errors import UnknownNameError
from raydebm.generators import Secret, check_keys
from raydebm.generators.account import JournalAccount
from raydebm.generators.endpoint.vllm import check_server, run_groups, running
from raydebm.generators.journal import Journal
from raydebm.generators.recorded import recorded_generators
from raydebm.generators.requests import highest_prices
from raydebm.generators.tally import GenerationSummary, Tally, check_enough
from raydebm.pipeline.ray.candidate_blocks import Setup, WaitingRequests
from raydebm.pipeline.ray.label import gold_free_reports
from raydebm.records import Candidate, GenerationRequest, Problem
from raydebm.run.directory import RunDir
from raydebm.run.folder import Many
from raydebm.run.tables import CANDIDATES

_LOG = logging.getLogger(__name__)
WINDOW_REQUESTS = 4096
"""Requests that are arranged into blocks together, and held in the driver's memory."""
_SPOOL = "spool"
"""Folder of waiting requests, in the stage."""
Progress = Callable[[int, int], None]
"""Called with (requests done, requests)."""


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

    Ray must be initialised. Answers in the journal are reused.

    Args:
        requests: requests without repetitions.
        problems: problems for joining recorded pools by the source's own ids.
        account: the journal, and the run whose costs count towards the limit. Default: ``<run>/<stage>/journal/``.

    Raises:
        MissingKeyError: an endpoint's key is not in the environment; nothing was sent.
        UnknownNameError: a request names a generator that the recipe lacks; nothing was sent.
        PoolError: too many requests failed; the answers are in the journal.
        ResourceError: a vLLM server cannot be started.
    """
    work = _Work(recipe, run, stage, account or JournalAccount(run, (stage, "journal")), on_progress)
    with _answering(requests, work, problems) as answering:
        answering.answer(requests)
        return answering.finish(requests)


def generate_in_waves(
    requests: Many[GenerationRequest],
    *,
    recipe: Recipe,
    run: RunDir,
    problems: Mapping[str, Problem],
    on_progress: Progress | None = None,
) -> GenerationSummary:
    """``generate`` for the first pass in waves of ``generation.waves``; settled problems get no further wave.

    Answers in the journal are reused and decide as before, so a resumed run without failed requests writes the same
    table. Failed requests are sent again, and their answers may settle a problem earlier.

    Args:
        requests: every request that may be sent.
        problems: problems by problem id, for parsing answers.

    Raises:
        ConfigError: the recipe has no ``generation.waves``.
        PoolError: a request names an unknown problem; see also ``generate``.
        MissingKeyError, UnknownNameError, ResourceError: see ``generate``.
    """
    planned = list(requests)
    work = _Work(recipe, run, "candidates", JournalAccount(run, ("candidates", "journal")), on_progress)
    with _answering(planned, work, problems.values()) as answering:
        schedule = WaveSchedule(
            planned, waves=recipe.generation.waves or (), prices=highest_prices(planned, recipe.generators)
        )
        while wave := schedule.next_wave():
            answering.answer(wave)
            voting = [answering.candidate(request) for request in wave if not request.sampling.is_greedy]
            schedule.record(gold_free_reports(problems, voting, recipe=recipe))
            answering.expect(len(planned) - len(schedule.unsent))
        unsent = {request.candidate_id for request in schedule.unsent}
        sent = [request for request in planned if request.candidate_id not in unsent]
        return answering.finish(sent, schedule)


@dataclass(frozen=True, slots=True)
class _Work:
    """Settings, destination and account of one call of ``generate``."""

    recipe: Recipe
    run: RunDir
    stage: str
    account: JournalAccount
    on_progress: Progress | None


@contextlib.contextmanager
def _answering(requests: Many[GenerationRequest], work: _Work, problems: Iterable[Problem]) -> Iterator["_Answering"]:
    """Check generators and keys, raising as ``generate`` does. Servers stop with the context."""
    known = {config.name: config for config in work.recipe.generators}
    names = dict.fromkeys(request.generator for request in requests)
    for name in names:
        if name not in known:
            raise UnknownNameError("generator", name, known)
    configs = tuple(config for name, config in known.items() if name in names)
    keys = check_keys(configs)
    with contextlib.ExitStack() as servers:
        try:
            yield _Answering(work, configs, keys, problems, servers, total=len(requests))
        finally:
            work.run.remove(work.stage, _SPOOL)


class _Answering:
    """Answers to the requests of one table. ``answer`` may be called repeatedly, as for waves."""

    def __init__(
        self,
        work: _Work,
        configs: tuple[GeneratorConfig, ...],
        keys: dict[str, Secret],
        problems: Iterable[Problem],
        servers: contextlib.ExitStack,
        *,
        total: int,
    ) -> None:
        self._work, self._configs, self._keys, self._servers = work, configs, keys, servers
        self._total = total
        self._started = time.monotonic()
        self._journal = Journal(work.account.folder)
        self._recorded = {pool.name: pool for pool in recorded_generators(configs, problems=problems)}
        self._held: dict[str, Candidate] = {}
        """Candidates that the journal does not have: failed requests, and answers that are not visible here yet."""
        self._num_reused = self._num_done = 0
        self._lock = threading.Lock()
        self._turn: tuple[GeneratorConfig, ...] = ()
        self._setup: Setup | None = None

    def answer(self, requests: Iterable[GenerationRequest]) -> None:
        """Answer these requests: from the journal, a recorded pool, or a generator."""
        work, generation = self._work, self._work.recipe.generation
        waiting = [
            (group, WaitingRequests(group, generation, work.run, work.stage, _SPOOL, f"{number}", total=self._total))
            for number, group in enumerate(run_groups(self._configs))
        ]
        rest = iter(requests)
        while window := list(islice(rest, WINDOW_REQUESTS)):
            asked = [request for request in window if request.generator not in self._recorded]
            missing = [request for request in asked if request.candidate_id not in self._journal]
            self._num_reused += len(asked) - len(missing)
            self._tell(len(window) - len(missing))
            for _, spools in waiting:
                spools.add(missing)
        waiting = [(group, spools) for group, spools in waiting if spools.num_requests]
        for group, _ in waiting:  # before anything is sent
            check_server(group[0])
        waiting.sort(key=lambda entry: entry[0] != self._turn)  # first the group whose servers still run
        for group, spools in waiting:
            spools.answer(self._reached(group), self._take, num_gpus=_cluster_gpus())

    def candidate(self, request: GenerationRequest) -> Candidate:
        """The candidate of an answered request."""
        if request.generator in self._recorded:
            return self._recorded[request.generator].reply(request)
        stored = self._journal.get(request.candidate_id)
        return self._held[request.candidate_id] if stored is None else stored

    def expect(self, total: int) -> None:
        """Set the expected number of requests."""
        self._total = total
        self._tell(0)

    def finish(self, requests: Iterable[GenerationRequest], schedule: WaveSchedule | None = None) -> GenerationSummary:
        """Write the table of these requests, and the manifest.

        Raises:
            PoolError: too many requests failed.
        """
        work, tally = self._work, Tally()
        with work.run.open_table(CANDIDATES, work.stage, "candidates.parquet") as table:
            rest = iter(requests)
            while rows := [CANDIDATES.row(self.candidate(request)) for request in islice(rest, WINDOW_REQUESTS)]:
                tally.add(rows)
                table.write(pa.Table.from_pylist(rows, schema=CANDIDATES.schema))
            saved = None
            if schedule is not None:
                unsent = Counter(request.generator for request in schedule.unsent)
                saved = tally.saved(unsent, num_problems=schedule.num_problems, num_settled=schedule.num_settled)
            seconds = time.monotonic() - self._started
            summary = tally.summary(seconds=seconds, num_reused=self._num_reused, saved=saved)
            max_failed_frac = work.recipe.generation.max_failed_frac
            check_enough(summary, max_failed_frac=max_failed_frac, journal=work.account.folder)
        if summary.num_failed:
            _LOG.warning("%d of %d requests failed: %s", summary.num_failed, summary.num_requests, summary.errors)
        work.run.finish(work.stage, summary.facts())
        return summary

    def _take(self, block: pa.Table) -> None:
        """Hold the candidates of a block that the journal does not have."""
        candidates = map(CANDIDATES.record, block.to_pylist())
        with self._lock:
            self._journal.catch_up()
            self._held |= {one.candidate_id: one for one in candidates if one.candidate_id not in self._journal}
            self._tell(block.num_rows)

    def _tell(self, num_more: int) -> None:
        self._num_done += num_more
        if self._work.on_progress is not None:
            self._work.on_progress(self._num_done, self._total)

    def _reached(self, group: tuple[GeneratorConfig, ...]) -> Setup:
        """Arguments of the actors. Starts the group's servers unless they still run, and stops those of another
        group."""
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
            )
        return self._setup


def _cluster_gpus() -> float:
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return float(resources.get("GPU", 0.0))
