"""Routes about given candidates: scores, reranking and rewards."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from raydebm.serving.api.connection import while_connected
from raydebm.serving.api.example_requests import examples_of
from raydebm.serving.api.schema.score_bodies import ScoreRequest, ScoreResponse
from raydebm.serving.api.scoring.rerank import RerankRequest, RerankResponse, rerank
from raydebm.serving.api.scoring.rewards import RewardRequest, RewardResponse, RewardSettings, get_rewards
from raydebm.serving.api.scoring.score_items import get_scores
from raydebm.serving.core.service import TriageService


def scoring_routes(service: TriageService) -> APIRouter:
    """Scores, reranking and rewards."""
    router = APIRouter(tags=["scoring"])

    @router.post(
        "/v1/score",
        summary="Score candidates",
        response_model=ScoreResponse,
        openapi_extra=examples_of("score", service.bundle),
    )
    async def score(body: ScoreRequest, request: Request) -> ScoreResponse:
        """Energies of given candidates. `score` = -energy: higher is better."""
        state = request.state
        work = get_scores(service, body, request_id=state.request_id, received=state.received)
        return await while_connected(request, work)

    @router.post(
        "/v1/rerank",
        summary="Rerank documents",
        response_model=RerankResponse,
        openapi_extra=examples_of("rerank", service.bundle),
    )
    @router.post("/v2/rerank", response_model=RerankResponse, include_in_schema=False)  # Cohere's client
    async def rerank_route(body: RerankRequest, request: Request) -> RerankResponse:
        """Documents in the order of their `relevance_score`, which is -energy: higher is better, and no probability."""
        state = request.state
        work = rerank(service, body, request_id=state.request_id, received=state.received)
        return await while_connected(request, work)

    @router.post(
        "/get_reward",
        summary="Give rewards",
        response_model=RewardResponse,
        openapi_extra=examples_of("rewards", service.bundle),
    )
    async def get_reward(
        body: RewardRequest, request: Request, settings: Annotated[RewardSettings, Query()]
    ) -> RewardResponse:
        """OpenRLHF's remote reward model: reward = -(mu + lambda E_constraint) - sigma_weight sigma, at least floor."""
        state = request.state
        work = get_rewards(service, body, settings, received=state.received)
        return await while_connected(request, work)

    return router
