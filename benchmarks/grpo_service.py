"""The service that pays the rewards of ``grpo_rewards``: a running one, or its routes in this process.

A task's constraints can be taken away from the one in this process, with a posterior fitted as if there were none.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx

from raydebm.config import parse_recipe
from raydebm.decision.evidence.fitting import LabelledTable, fit_posterior
from raydebm.decision.policy import Policy
from raydebm.decision.sampling.checks import check_candidate
from raydebm.pipeline.context import VALIDATION
from raydebm.pipeline.pools import evaluated_pools
from raydebm.pipeline.runner import Pipeline
from raydebm.pipeline.stages.posterior import labelled_pools
from raydebm.records import Candidate, ConstraintReport, Energies, Problem
from raydebm.run.directory import RunDir
from raydebm.scorer.ensemble import EnsembleScorer
from raydebm.scorer.texts import TextToScore, energies_of_lists
from raydebm.serving.api.application import create_app
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.app_args import AppArgs
from raydebm.serving.settings.bundle import Bundle, load_bundle
from raydebm.tasks.knights_knaves import KnightsKnaves
from raydebm_client import Raydebm

TASK = "knights_knaves"


@dataclass(frozen=True, kw_only=True)
class LocalBackend:
    """A service's parts in this process (``raydebm.serving.core.backend.Backend``); it generates nothing."""

    scorer: EnsembleScorer
    proofs: bool
    """False: constraints find nothing, so that answers are parsed and no more."""

    async def generate(self, requests: Sequence[Any], on_candidate: Any, *, may_repeat: bool) -> list[Candidate]:
        raise NotImplementedError("rewards are about given texts")

    async def check(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]:
        reports = [check_candidate(KnightsKnaves(), problem, candidate) for candidate in candidates]
        return reports if self.proofs else [without_constraints(report) for report in reports]

    async def score(self, texts: Sequence[TextToScore]) -> list[Energies | None]:
        """Equal texts are scored once."""
        unique = {(text.prompt, text.text): text for text in texts}
        by_text = dict(zip(unique, energies_of_lists(self.scorer, [list(unique.values())])[0], strict=True))
        return [
            None if energies is None else replace(energies, candidate_id=text.candidate_id)
            for text in texts
            for energies in [by_text[text.prompt, text.text]]
        ]

    async def baseline_scores(self, texts: Sequence[TextToScore]) -> list[Mapping[str, float]]:
        return [{} for _ in texts]

    def serving(self, bundle: Bundle) -> "LocalBackend":
        return self

    async def status(self) -> dict[str, Any]:
        return {"scorer": "in process"}


def without_constraints(report: ConstraintReport) -> ConstraintReport:
    """The report of a task that can parse answers and has nothing to check them by."""
    return replace(report, penalty=0.0 if report.parsed else report.penalty, violations=(), proof=None, note="")


def policy_without_constraints(run_dir: str, base: Policy) -> Policy:
    """The run's policy with a posterior fitted on its validation problems as if the task had no constraints."""
    recipe = parse_recipe({**RunDir(run_dir).read_json("recipe.json"), "run_dir": run_dir}, where=run_dir)
    pools = [
        replace(
            pool,
            candidates=[replace(scored, report=without_constraints(scored.report)) for scored in pool.candidates],
        )
        for pool in labelled_pools(evaluated_pools(Pipeline(recipe=recipe), VALIDATION))
        if pool.is_labelled
    ]
    table = LabelledTable.of(pools)
    return base.replaced(posterior=replace(fit_posterior(table, lambda_=base.lambda_), task=TASK))


class InProcess(httpx.BaseTransport):
    """Sends a blocking client's requests to an ASGI application."""

    def __init__(self, app: Any) -> None:
        self._transport = httpx.ASGITransport(app=app)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        async def send() -> httpx.Response:
            body = httpx.Request(request.method, request.url, headers=request.headers, content=request.read())
            answer = await self._transport.handle_async_request(body)
            return httpx.Response(answer.status_code, headers=answer.headers, content=await answer.aread())

        return asyncio.run(send())


@dataclass(frozen=True, kw_only=True)
class Service:
    """Where rewards come from."""

    client: Raydebm
    http: httpx.Client
    """For what the client leaves out of an answer: mu and sigma of each text."""

    @classmethod
    def at(cls, url: str, transport: httpx.BaseTransport | None = None) -> "Service":
        http = httpx.Client(base_url=url, timeout=300, transport=transport)
        return cls(client=Raydebm(url, transport=transport), http=http)


def local_service(run_dir: str, *, proofs: bool) -> Service:
    """The run's service in this process."""
    bundle = load_bundle(AppArgs(run_dir=run_dir, records=None, max_deadline_s=None))
    if not proofs:
        bundle = replace(bundle, policies={TASK: policy_without_constraints(run_dir, bundle.policies[TASK])})
    scorer = EnsembleScorer.load(bundle.checkpoint, device="cpu", threads=1)
    app = create_app(TriageService(bundle, LocalBackend(scorer=scorer, proofs=proofs)))
    return Service.at("http://localhost", InProcess(app))
