"""Ray deployments behind the ingress: generators, the ensemble scorer, baselines that are evidence, constraint checks.

Each is a plain class; ``app`` makes deployments of them. Each call takes one list. Models load in ``__init__``. Torch
is imported inside functions, so that building the application and the ingress do not load it.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ray.serve.context import _get_serve_request_context

from raydebm import tracing
from raydebm.config import BaselineConfig, GeneratorConfig, TaskConfig
from raydebm.decision.reporter import DEADLINE_S, Reporter
from raydebm.generators import Generator, build_generator
from raydebm.records import Candidate, ConstraintReport, Energies, GenerationRequest, Problem
from raydebm.run.directory import RunDir
from raydebm.run.ensemble_file import CheckpointRef, read_ref
from raydebm.scorer.texts import TextScorer, TextToScore, energies_of_lists
from raydebm.service.access import ENVIRONMENT as CLIENT_KEYS
from raydebm.service.logs import configure_logs
from raydebm.service.ray.loaded import Draws, Ensembles, LoadedGenerators, Trace
from raydebm.service.ray.slices import MAX_TEXTS, SLICE_S, SliceQueue
from raydebm.service.settings import RunSource

log = logging.getLogger(__name__)

LINGER_S = 0.003
"""Seconds to collect candidates into one message. A message between two actors costs milliseconds of CPU time, and each
leads to one to the checks and one to the scorer."""


def forget_client_keys() -> None:
    """Remove the clients' API keys from the environment of a replica and its children, which do not need them."""
    os.environ.pop(CLIENT_KEYS, None)


class GeneratorDeployment:
    """All generators of the service in one process, the only one with the provider keys."""

    def __init__(
        self,
        configs: Sequence[GeneratorConfig],
        run_dir: str,
        source: RunSource | None = None,
    ) -> None:
        """Args:
        configs: generators to load.
        run_dir: run directory. Its problems resolve the ids of recorded pools.
        source: name of this run in calls. Default: unknown, for calls that name no run.
        """
        forget_client_keys()
        configure_logs(request_id_of_serve)
        tracing.start_tracing("generator")
        self._loaded = LoadedGenerators(self._build(configs, run_dir), self._build_run, source=source)

    def _build(self, configs: Sequence[GeneratorConfig], run_dir: str) -> dict[str, Generator]:
        problems = _problems(run_dir) if any(config.kind == "recorded" for config in configs) else ()
        return {config.name: build_generator(config, problems=problems) for config in configs}

    def _build_run(self, source: RunSource) -> dict[str, Generator]:
        return self._build(source.configs(), source.run_dir)

    async def load(self, source: RunSource) -> list[str]:
        """Load a run's generators before requests name them. Returns their names.

        Raises:
            RaydebmError: they cannot be used; loaded ones remain.
        """
        return list(await self._loaded.get(source))

    async def stream(
        self,
        requests: Sequence[GenerationRequest],
        trace: Trace = None,
        may_repeat: bool = True,
        source: RunSource | None = None,
    ) -> AsyncIterator[list[Candidate]]:
        """Stream one candidate per request in order of arrival, in batches that collect for up to ``LINGER_S``.

        A generator that fails gives rows with ``error``.

        Args:
            requests: generation requests.
            trace: headers of the caller's span.
            may_repeat: permission to resend a request that may already be billed.
            source: run of the generators, loaded if necessary. Default: the replica's first run.

        Raises:
            RaydebmError: the run's generators cannot be loaded.
        """
        generators = await self._loaded.get(source)
        arrivals: asyncio.Queue[Candidate] = asyncio.Queue()
        draws = Draws(generators, arrivals, trace, may_repeat)
        names = dict.fromkeys(request.generator for request in requests)
        async with asyncio.TaskGroup() as group:
            for name in names:
                of_name = [request for request in requests if request.generator == name]
                group.create_task(draws.draw(name, of_name))
            num_left = len({request.candidate_id for request in requests})
            while num_left:
                batch = [await arrivals.get()]
                with suppress(TimeoutError):
                    async with asyncio.timeout(LINGER_S):
                        while len(batch) < num_left:
                            batch.append(await arrivals.get())
                num_left -= len(batch)
                yield batch

    def info(self) -> list[str]:
        """Names of the loaded generators."""
        return self._loaded.names


@dataclass(frozen=True, slots=True)
class _Text:
    """One text of a call, and its ensemble."""

    ensemble: TextScorer
    text: TextToScore

    @property
    def size(self) -> int:
        """Length in characters, including the problem."""
        return len(self.text.prompt) + len(self.text.text)


class ScorerDeployment:
    """The ensemble. Concurrent requests take turns in short shared batches."""

    def __init__(
        self,
        checkpoint: str,
        device: str = "auto",
        dtype: str = "auto",
    ) -> None:
        """Args:
        checkpoint: first ensemble to load.
        device: as in ``EnsembleScorer.load``, like dtype.
        """
        forget_client_keys()
        self._ensembles = Ensembles(device=device, dtype=dtype)
        self._first = read_ref(checkpoint)
        self._ensembles.load_now(self._first)
        configure_logs(request_id_of_serve)
        tracing.start_tracing("scorer")
        self._queue: SliceQueue[_Text, Energies | None] = SliceQueue(self.score_parts, size=lambda text: text.size)
        self._num_calls = self._num_batches = 0

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Apply ``user_config`` of serve_config.yaml (``max_batch_texts`` and ``batch_s``) without a restart."""
        self._queue.max_texts = int(user_config.get("max_batch_texts", MAX_TEXTS))
        self._queue.slice_s = float(user_config.get("batch_s", SLICE_S))

    async def load(self, checkpoint: CheckpointRef) -> list[str]:
        """Load other adapters before requests name them. Returns their names.

        Raises:
            CheckpointError: they cannot be used; loaded ones remain.
        """
        return list((await self._ensembles.get(checkpoint)).adapters)

    async def score(
        self,
        texts: Sequence[TextToScore],
        checkpoint: CheckpointRef | None = None,
        trace: Trace = None,
    ) -> list[Energies | None]:
        """Energies in the order of the texts; None for a text with a NaN energy.

        Args:
            texts: texts to score.
            checkpoint: adapters to use, loaded if necessary. Default: the replica's first ones.
            trace: headers of the caller's span.

        Raises:
            CheckpointError: the adapters cannot be loaded.
        """
        self._num_calls += 1
        wanted = checkpoint or self._first
        facts: tracing.Attributes = {"raydebm.checkpoint": wanted.fingerprint, "raydebm.num_candidates": len(texts)}
        with tracing.span("ensemble", facts, parent=trace):
            ensemble = await self._ensembles.get(wanted)
            return await self._queue.submit([_Text(ensemble, text) for text in texts])

    def score_parts(self, parts: Sequence[Sequence[_Text]]) -> list[list[Energies | None]]:
        """Score one batch of parts of several calls: one pass per ensemble. There are two only during an exchange of
        adapters."""
        self._num_batches += 1
        by_place: dict[int, list[Energies | None]] = {}
        for ensemble in dict.fromkeys(part[0].ensemble for part in parts):
            places = [place for place, part in enumerate(parts) if part[0].ensemble is ensemble]
            energies = energies_of_lists(ensemble, [[work.text for work in parts[place]] for place in places])
            by_place.update(zip(places, energies, strict=True))
        return [by_place[place] for place in range(len(parts))]

    def info(self) -> dict[str, Any]:
        """Loaded adapters, and batching: ``calls`` requests in ``batches`` passes."""
        return {
            "adapters": list(self._ensembles.latest.adapters),
            "checkpoints": self._ensembles.fingerprints,
            "calls": self._num_calls,
            "batches": self._num_batches,
        }


class BaselineDeployment:
    """The baselines whose scores are evidence. Calls run one at a time, because each fills the device."""

    def __init__(self, configs: Sequence[BaselineConfig], run_dir: str) -> None:
        """Args:
        configs: baselines to load.
        run_dir: run directory with the checkpoints of baselines trained on its pairs.
        """
        from raydebm.evaluation.baselines.evidence import EvidenceScorers

        forget_client_keys()
        configure_logs(request_id_of_serve)
        tracing.start_tracing("baselines")
        self._scorers = EvidenceScorers.load(configs, RunDir(run_dir))
        self._turn = asyncio.Lock()

    async def score(self, texts: Sequence[TextToScore], trace: Trace = None) -> list[Mapping[str, float]]:
        """Scores by baseline name per text, in order."""
        with tracing.span("baselines", {"raydebm.num_candidates": len(texts)}, parent=trace):
            async with self._turn:
                return await asyncio.to_thread(self._scorers.scores, [(text.prompt, text.text) for text in texts])


class ConstraintDeployment:
    """The tasks' gold-free checks, in child processes, because a check may hang."""

    def __init__(self) -> None:
        forget_client_keys()
        configure_logs(request_id_of_serve)
        tracing.start_tracing("constraints")
        self._reporter = Reporter(deadline_s=DEADLINE_S)
        self._reporter.start()

    async def check(
        self,
        problem: Problem,
        candidates: Sequence[Candidate],
        trace: Trace = None,
        task: TaskConfig | None = None,
    ) -> list[ConstraintReport]:
        """One report per candidate, in order; a check that crashes or hangs gives a report with ``error``.

        Args:
            problem: problem of the candidates.
            candidates: candidates to check.
            trace: headers of the caller's span.
            task: the recipe's section, for a task defined by a user. Default: found by its name.
        """
        facts: tracing.Attributes = {"raydebm.task": problem.task, "raydebm.num_candidates": len(candidates)}
        with tracing.span("constraints", facts, parent=trace):
            # A limit per call makes calls take turns, and a cancelled call adds no more checks.
            places = asyncio.Semaphore(self._reporter.most)

            async def report(candidate: Candidate) -> ConstraintReport:
                async with places:
                    return await asyncio.wrap_future(self._reporter.submit(problem, candidate, task))

            return list(await asyncio.gather(*map(report, candidates)))


def request_id_of_serve() -> str:
    """Id of the current request in a replica behind the ingress; Serve passes it on with every call."""
    return str(_get_serve_request_context().request_id)


def _problems(run_dir: str) -> tuple[Problem, ...]:
    run = RunDir(run_dir)
    return tuple(row.problem for row in run.problems()) if run.has_problems() else ()
