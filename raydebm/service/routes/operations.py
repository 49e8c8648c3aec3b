"""``/health``, ``/v1/options`` (tasks, policies, generators, limits) and ``/v1/problems`` (of the test split).

Independent of: Ray. The table of problems has no gold, and the table of gold is never opened.
"""

import asyncio
import random
from functools import cache
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from raydebm import __version__
from raydebm.errors import PoolError, RaydebmError, ServiceError
from raydebm.records import Problem
from raydebm.run.directory import RunDir
from raydebm.scorer.pairs import held_out
from raydebm.service.core import TriageService
from raydebm.service.logs import redact
from raydebm.service.settings import MAX_PASSES, MAX_SAMPLES, Bundle
from raydebm.service.store.record import DecisionWriter

MAX_INDEX = 2**31 - 1


class OptionsBody(BaseModel):
    """Values that requests can choose from, with their defaults."""

    tasks: list[str]
    policies: dict[str, dict[str, Any]]
    """The served policy of each task."""
    named_policies: dict[str, dict[str, Any]]
    """Settings that each named policy changes."""
    generators: list[str]
    """Names over all tasks."""
    generators_of: dict[str, list[str]]
    """Names by task."""
    seed: int
    limits: dict[str, int]
    """Largest ``max_passes``, ``max_samples`` (of a generator in pass 1), ``max_regenerate`` (of a later pass) and
    ``max_problem_chars`` of a request."""
    num_problems: int
    """Number of problems of the run's test split that ``/v1/problems`` can show; 0 if there are none."""


class SampleProblem(BaseModel):
    """One problem of the run's test split; ``problem`` can be sent to ``/v1/triage`` as it is."""

    index: int
    total: int
    task: str
    problem: dict[str, Any]
    """``prompt``, ``data``, ``problem_id``, ``difficulty``, and ``kind`` where it is known."""


def _test_problems(bundle: Bundle) -> list[Problem]:
    if not (run := RunDir(bundle.run_dir)).has_problems():
        return []
    rows = run.problems()
    test = held_out(rows, bundle.recipe)
    return [row.problem for row in rows if row.problem.problem_id in test and row.problem.task in bundle.tasks]


def options_body(bundle: Bundle, *, num_problems: int) -> OptionsBody:
    """Body of ``/v1/options``; ``num_problems`` is the number of sample problems."""
    policy = bundle.policy
    return OptionsBody(
        tasks=list(bundle.tasks),
        policies={run.tasks[0]: run.served(run.policy).to_json() for run in bundle.runs},
        named_policies={
            name: changes.model_dump(by_alias=True, exclude_unset=True) for name, changes in bundle.profiles.items()
        },
        generators=list(bundle.all_generators),
        generators_of={name: list(bundle.of(name).generators) for name in bundle.tasks},
        seed=bundle.recipe.seed,
        limits={
            "max_passes": min(MAX_PASSES, policy.max_passes),
            "max_samples": min(MAX_SAMPLES, bundle.max_samples),
            "max_regenerate": min(MAX_SAMPLES, policy.num_regenerate),
            "max_problem_chars": bundle.max_problem_chars,
        },
        num_problems=num_problems,
    )


def sample_routes(bundle: Bundle) -> APIRouter:
    """Routes of the options and of sample problems."""
    router = APIRouter(tags=["asking"])
    # A run's problems never change.
    problems_of = cache(lambda: [problem for run in bundle.runs for problem in _test_problems(run)])

    @router.get("/v1/options", summary="Show the settings")
    async def options() -> OptionsBody:
        """Tasks, policies, generators and limits of this service."""
        try:
            num_problems = len(await asyncio.to_thread(problems_of))
        except PoolError:  # an unreadable table must not block clients; /v1/problems reports the error
            num_problems = 0
        return options_body(bundle, num_problems=num_problems)

    @router.get("/v1/problems", summary="Show a sample problem")
    async def problems(index: Annotated[int | None, Query(ge=0, le=MAX_INDEX)] = None) -> SampleProblem:
        """One problem of the run's test split, without its gold: the one at `index`, or a random one."""
        found = await asyncio.to_thread(problems_of)
        if not found:
            raise ServiceError("this run has no test problems to show", 404, "no_problems")
        # The choice affects no decision, so it needs no seed.
        chosen = random.randrange(len(found)) if index is None else index
        if chosen >= len(found):
            message = f"there is no problem {chosen}; the test split has {len(found)}, counted from 0"
            raise ServiceError(message, 404, "unknown_problem", "index")
        problem = found[chosen]
        body = {name: getattr(problem, name) for name in ("prompt", "problem_id", "difficulty")}
        body |= {"data": dict(problem.data), **({"kind": problem.kind} if problem.kind else {})}
        return SampleProblem(index=chosen, total=len(found), task=problem.task, problem=body)

    return router


# ---- health ----------------------------------------------------------------------------------------------------------


class HealthBody(BaseModel):
    """Health of the service. If it has API keys, a request without one gets only ``status`` and ``version``."""

    status: Literal["ok"]
    version: str
    """Version of raydebm."""
    tasks: list[str] | None = None
    versions: dict[str, str] | None = None
    """Versions of the first run's parts."""
    runs: dict[str, dict[str, str]] | None = None
    """Versions of each task's run."""
    generators: list[str] | None = None
    scorer: dict[str, Any] | None = None
    warnings: list[str] | None = None
    """Problems for the operator that do not stop the service, such as a refused change."""


def health_route(service: TriageService) -> APIRouter:
    """Route for health and readiness probes."""
    router, bundle, writer = APIRouter(tags=["operations"]), service.bundle, service.records

    @router.get("/health", response_model=HealthBody, response_model_exclude_none=True, summary="Check readiness")
    async def health(request: Request) -> dict[str, Any]:
        """200 when scorer and generators are loaded; 503 otherwise.

        If the service has API keys, a request without one gets only `status` and `version`."""
        ready = {"status": "ok", "version": __version__}
        is_anonymous = request.state.keyring is not None and request.state.caller is None
        try:
            parts = await service.backend.status()
        except RaydebmError as error:
            if not is_anonymous:
                raise
            message = "the service is not ready; send an API key to see the reason"
            raise ServiceError(message, 503, "not_ready") from error
        if is_anonymous:
            return ready
        warnings = service.notices()
        if isinstance(writer, DecisionWriter) and writer.last_error is not None:
            counts = f"{writer.num_waiting} waiting, {writer.num_dropped} lost"
            warnings = [*warnings, redact(f"decisions cannot be written ({counts}): {writer.last_error}")]
        return {
            **ready,
            "tasks": list(bundle.tasks),
            "versions": dict(bundle.versions),
            "runs": {name: dict(bundle.of(name).versions) for name in bundle.tasks},
            "warnings": warnings,
            **parts,
        }

    return router
