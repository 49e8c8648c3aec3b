"""The Ray parts behind the ingress: generators, the ensemble scorer, the constraint checks.

Each is a plain class; ``app`` makes deployments of them. Each call takes one list. Models load in ``__init__``. Imports
of torch stay inside, so that building the application and the ingress load none.
"""

import asyncio
import logging
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from pyarrow import fs
from ray import serve
from ray.serve.context import _get_serve_request_context

from raydebm.config import GeneratorConfig, TaskConfig
from raydebm.errors import GenerationError
from raydebm.generators import Generator, build_generator
from raydebm.generators.requests import unanswered
from raydebm.records import Candidate, ConstraintReport, Energies, GenerationRequest, Problem
from raydebm.serving.logs import configure_logs
from raydebm.serving.metrics import BatchMeter
from raydebm.serving.parts import TextToScore
from raydebm.serving.scoring import energies_of_lists
from raydebm.store import PROBLEMS, RunDir, problem_of
from raydebm.tasks import get_task, task_of
from raydebm.triage.checks import check_candidate

log = logging.getLogger(__name__)

MAX_BATCH = 32
"""Most requests whose candidates are scored together."""
BATCH_WAIT_S = 0.005
"""What a lone request pays for company; while a batch is being scored, the next one gathers anyway."""


class GeneratorDeployment:
    """All generators of the service in one process. The provider keys are needed here and nowhere else."""

    def __init__(self, configs: Sequence[GeneratorConfig], run_dir: str, threads: int | None = None) -> None:
        """
        Args:
            configs: what to load.
            run_dir: its problems tell recorded pools, which may use the source's own problem ids, what is asked.
            threads: torch threads of local models.
        """
        configure_logs(request_id_of_serve)
        problems = _problems(run_dir) if any(config.kind == "recorded" for config in configs) else ()
        self._generators: dict[str, Generator] = {
            config.name: build_generator(config, threads=threads, problems=problems) for config in configs
        }

    async def generate(self, requests: Sequence[GenerationRequest]) -> list[Candidate]:
        """One candidate per request, in their order. A generator that does not work gives rows with ``error``."""
        found = {candidate.candidate_id: candidate async for candidate in self.stream(requests)}
        return [found[request.candidate_id] for request in requests]

    async def stream(self, requests: Sequence[GenerationRequest]) -> AsyncIterator[Candidate]:
        """The same candidates in the order of their arrival, over all generators."""
        arrivals: asyncio.Queue[Candidate] = asyncio.Queue()
        names = dict.fromkeys(request.generator for request in requests)
        async with asyncio.TaskGroup() as group:
            for name in names:
                of_name = [request for request in requests if request.generator == name]
                group.create_task(self._draw(name, of_name, arrivals))
            for _ in range(len({request.candidate_id for request in requests})):
                yield await arrivals.get()

    async def _draw(
        self, name: str, requests: Sequence[GenerationRequest], arrivals: "asyncio.Queue[Candidate]"
    ) -> None:
        """Exactly one arrival per request, whatever happens to the generator."""
        waiting = {request.candidate_id: request for request in requests}
        try:
            if name not in self._generators:
                raise GenerationError(f"generator {name!r} is not loaded; loaded: {', '.join(self._generators)}")
            async for candidate in self._generators[name].stream(requests):
                if waiting.pop(candidate.candidate_id, None) is not None:
                    arrivals.put_nowait(candidate)
            reason = f"generator {name!r} gave no answer to this request"
        except Exception as error:
            # A model or an endpoint may break in any way; it must not take the other generators' candidates along.
            log.exception("generator %r failed", name)
            reason = f"generator {name!r} failed: {error}"
        for request in waiting.values():
            arrivals.put_nowait(unanswered(request, reason))

    def info(self) -> list[str]:
        """Names of the loaded generators."""
        return list(self._generators)


class ScorerDeployment:
    """The ensemble. Candidates of requests that arrive together are scored in one batch."""

    def __init__(
        self,
        checkpoint: str,
        device: str = "auto",
        dtype: str = "auto",
        threads: int | None = None,
        batching: bool = True,
    ) -> None:
        from raydebm.scorer.ensemble import EnsembleScorer

        self._scorer = EnsembleScorer.load(local_folder(checkpoint), device=device, dtype=dtype, threads=threads)
        configure_logs(request_id_of_serve)
        self._batching, self._meter = batching, BatchMeter()
        self._num_calls = self._num_batches = 0

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        """``user_config`` of serve_config.yaml: ``max_batch_size`` and ``batch_wait_timeout_s``, changed without a
        restart."""
        batched: Any = self._score_batch  # serve.batch adds the setters
        if "max_batch_size" in user_config:
            batched.set_max_batch_size(int(user_config["max_batch_size"]))
        if "batch_wait_timeout_s" in user_config:
            batched.set_batch_wait_timeout_s(float(user_config["batch_wait_timeout_s"]))

    async def score(self, texts: Sequence[TextToScore]) -> list[Energies | None]:
        """Energies in the order of the texts; None for a text that gives NaN, which sinks no other."""
        self._num_calls += 1
        if self._batching:
            batched: list[Energies | None] = await self._score_batch(texts)
            return batched
        return (await asyncio.to_thread(self.score_lists, [texts]))[0]

    @serve.batch(max_batch_size=MAX_BATCH, batch_wait_timeout_s=BATCH_WAIT_S)
    async def _score_batch(self, lists: list[Sequence[TextToScore]]) -> list[list[Energies | None]]:
        # In a thread, so that health checks and new arrivals are served while the model works.
        return await asyncio.to_thread(self.score_lists, lists)

    def score_lists(self, lists: Sequence[Sequence[TextToScore]]) -> list[list[Energies | None]]:
        """The batched work itself."""
        self._num_batches += 1
        started = time.perf_counter()
        found = energies_of_lists(self._scorer, lists)
        seconds = time.perf_counter() - started
        self._meter.scored(num_requests=len(lists), num_texts=sum(map(len, lists)), seconds=seconds)
        return found

    def info(self) -> dict[str, Any]:
        """What is loaded, and how well batching works: ``calls`` / ``batches`` requests share a pass on average."""
        return {"adapters": list(self._scorer.adapters), "calls": self._num_calls, "batches": self._num_batches}


class ConstraintDeployment:
    """The tasks' gold-free checks."""

    def __init__(self, task: TaskConfig | None = None) -> None:
        """
        Args:
            task: the recipe's section, which may hold a user's definition; other tasks are known by their name.
        """
        configure_logs(request_id_of_serve)
        self._task = task

    async def check(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]:
        """One report per candidate, in their order; a check that crashes is a report with ``error``."""
        return await asyncio.to_thread(self._check, problem, candidates)

    def _check(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]:
        config = self._task
        task = get_task(problem.task) if config is None or config.name != problem.task else task_of(config)
        return [check_candidate(task, problem, candidate) for candidate in candidates]


def request_id_of_serve() -> str:
    """The id of the request that a replica behind the ingress works on: Serve hands it on with every call."""
    return str(_get_serve_request_context().request_id)


def _problems(run_dir: str) -> tuple[Problem, ...]:
    run = RunDir(run_dir)
    if not run.exists("problems", "problems.parquet"):
        return ()
    return tuple(problem_of(row) for row in run.read_table(PROBLEMS, "problems", "problems.parquet"))


def local_folder(address: str) -> str:
    """A checkpoint folder on this machine's disk; one behind a filesystem URL is copied to a temporary folder."""
    if "://" not in address:
        return address
    source, path = fs.FileSystem.from_uri(address)
    folder = tempfile.mkdtemp(prefix="raydebm-scorer-")
    fs.copy_files(path, folder, source_filesystem=source, destination_filesystem=fs.LocalFileSystem())
    return folder
