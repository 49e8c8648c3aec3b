"""The HTTP surface: routes, and failures in OpenAI's form. Knows the service, not Ray."""

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from raydebm import __version__
from raydebm.errors import RaydebmError
from raydebm.serving.asking import charged_to
from raydebm.serving.batch import BatchRequest, BatchResponse, triage_ask, triage_batch
from raydebm.serving.bundle import Bundle, request_timeout_s
from raydebm.serving.ceilings import CeilingBody
from raydebm.serving.chat import completion_body, make_chat_ask
from raydebm.serving.connection import EventStream, while_connected
from raydebm.serving.decisions.reader import DecisionReader
from raydebm.serving.decisions.routes import decision_routes, live_route
from raydebm.serving.decisions.viewing import Decisions
from raydebm.serving.decisions.writer import DecisionWriter
from raydebm.serving.errors import as_service_error, error_response, http_error, validation_error
from raydebm.serving.guard import PUBLIC_PATHS, Guard
from raydebm.serving.idempotency import IdempotencyStore
from raydebm.serving.keys import Keyring
from raydebm.serving.ledger import Ledger
from raydebm.serving.limits import Intake
from raydebm.serving.live import LiveMeter
from raydebm.serving.logs import redact
from raydebm.serving.models import model_body, models_body
from raydebm.serving.openapi import ERRORS, describe, examples_of
from raydebm.serving.outcomes.assembly import claim_monitor, outcome_desk
from raydebm.serving.outcomes.routes import outcome_routes
from raydebm.serving.pages import page_paths, page_routes
from raydebm.serving.replies import ChatCompletion, HealthBody, ModelBody, ModelsBody
from raydebm.serving.rerank import RerankRequest, RerankResponse, rerank
from raydebm.serving.response_schema import ResponseBody, ResponseRequest
from raydebm.serving.responses import chat_of, response_body
from raydebm.serving.rewards import RewardRequest, RewardResponse, RewardSettings, get_rewards
from raydebm.serving.samples import sample_routes
from raydebm.serving.schema import ChatRequest, TriageRequest, TriageResponse
from raydebm.serving.score_schema import ScoreRequest, ScoreResponse
from raydebm.serving.service import TriageService
from raydebm.serving.streaming import chat_events, response_events, triage_events
from raydebm.serving.structured import json_form
from raydebm.serving.verify import verify
from raydebm.serving.verify_schema import VerifyRequest, VerifyResponse


def create_app(
    service: TriageService,
    *,
    keyring: Keyring | None = None,
    echo_request_id: bool = True,
    live: LiveMeter | None = None,
    intake: Intake | None = None,
    ledger: Ledger | None = None,
    idempotency: IdempotencyStore | None = None,
) -> FastAPI:
    """The ASGI application over one service.

    Args:
        service: answers requests.
        keyring: who may call; None: anyone.
        echo_request_id: see ``Guard``.
        live: what ``/v1/live`` shows; the service's meter, where that remembers.
        intake: see ``Guard``.
        ledger: counts the days' spending; None: one of the bundle's file.
        idempotency: see ``Guard``; None: one of the bundle's file.
    """
    app = FastAPI(
        title="raydebm",
        version=__version__,
        summary="Chooses among LLM answers, and abstains when none can be trusted.",
        # FastAPI's own pages load their scripts from another host; ``pages`` has one that does not.
        docs_url=None,
        redoc_url=None,
        responses=ERRORS,
        # FastAPI's own telemetry would send query strings and messages of exceptions (see serving.telemetry).
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    writer = service.records if isinstance(service.records, DecisionWriter) else None
    claims = service.claims or claim_monitor(service.bundle, service.meter)
    reader = None if claims is None else DecisionReader(claims.outcomes.records, outcomes=claims.outcomes)
    stored = None if reader is None else Decisions(reader, claims)
    desk = None if reader is None or claims is None else outcome_desk(service, reader, claims)
    routers = (
        _model_routes(service),
        _chat_routes(service),
        _response_routes(service),
        _triage_routes(service),
        _scoring_routes(service),
        _health_route(service, writer),
        _ceiling_route(),
        decision_routes(stored),
        outcome_routes(desk),
        live_route(live, writer),
        sample_routes(service.bundle),
        page_routes(),
    )
    app.add_middleware(
        Guard,
        max_body_bytes=service.bundle.max_body_bytes,
        limits=service.bundle.limits,
        keyring=keyring,
        meter=service.meter,
        echo_request_id=echo_request_id,
        public_paths=PUBLIC_PATHS | page_paths(),
        routes=[route for router in routers for route in router.routes],
        allowed_hosts=service.bundle.allowed_hosts,
        intake=intake,
        ledger=ledger or ledger_of(service.bundle),
        idempotency=idempotency or idempotency_of(service.bundle),
    )
    _add_error_handlers(app)
    for router in routers:
        app.include_router(router)
    describe(app, service.bundle, keyed=keyring is not None)
    return app


def ledger_of(bundle: Bundle) -> Ledger | None:
    """The ledger in the bundle's file, which is opened when somebody spends below a ceiling."""
    if bundle.ledger_file is None:
        return None
    return Ledger(bundle.ledger_file, across_nodes=bundle.limits.ledger_across_nodes)


def idempotency_of(bundle: Bundle) -> IdempotencyStore:
    """The store beside the ledger's file; without one, the keys of this process alone."""
    path = None if bundle.ledger_file is None else Path(bundle.ledger_file).with_name("idempotency.sqlite")
    return IdempotencyStore(
        ":memory:" if path is None else str(path),
        longest_s=request_timeout_s(bundle.max_deadline_s),
        across_nodes=bundle.limits.ledger_across_nodes,
    )


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(RaydebmError)
    async def on_raydebm_error(request: Request, error: RaydebmError) -> JSONResponse:
        return error_response(as_service_error(error))

    @app.exception_handler(RequestValidationError)
    async def on_validation_error(request: Request, error: RequestValidationError) -> JSONResponse:
        return error_response(validation_error(error))

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> JSONResponse:
        return error_response(http_error(error), headers=error.headers)


def _model_routes(service: TriageService) -> APIRouter:
    router = APIRouter(tags=["chat"])

    @router.get("/v1/models", response_model=ModelsBody, summary="List models")
    async def models() -> dict[str, Any]:
        """One model per task and named policy, and `raydebm/auto`."""
        return models_body(service.bundle)

    @router.get("/v1/models/{model_id:path}", response_model=ModelBody, summary="Show a model")
    async def model(model_id: str) -> dict[str, Any]:
        """One of them."""
        return model_body(service.bundle, model_id)

    return router


def _chat_routes(service: TriageService) -> APIRouter:
    router = APIRouter(tags=["chat"])

    @router.post(
        "/v1/chat/completions",
        summary="Complete a chat",
        response_model=None,
        responses={200: {"model": ChatCompletion, "content": {"text/event-stream": {}}}},
        openapi_extra=examples_of("chat"),
    )
    async def chat(body: ChatRequest, request: Request) -> Response:
        """OpenAI's chat completions. The last user message is the problem, what stands before it is context.

        An abstention is a refusal: status 200, `content` null, `refusal` set. The top-level `raydebm` object says why.
        With `stream` come progress, then the answer's chunks, then `[DONE]`."""
        state = request.state
        ask, overrides = make_chat_ask(
            service.bundle, body, request_id=state.request_id, headers=request.headers, received=state.received
        )
        ask = charged_to(ask, state.key_use.account)
        if body.stream:
            return EventStream(chat_events(service, ask, body, overrides))
        answer = await while_connected(request, service.triage(ask))
        return JSONResponse(
            completion_body(
                answer,
                model=body.model,
                on_abstain=overrides.on_abstain,
                form=json_form(body.response_format),
                n=body.n,
            )
        )

    return router


def _response_routes(service: TriageService) -> APIRouter:
    router = APIRouter(tags=["chat"])

    @router.post(
        "/v1/responses",
        summary="Create a response",
        response_model=None,
        responses={200: {"model": ResponseBody, "content": {"text/event-stream": {}}}},
        openapi_extra=examples_of("responses"),
    )
    async def response(body: ResponseRequest, request: Request) -> Response:
        """OpenAI's Responses API for text: the same chat in another shape. Nothing is kept between requests, so `input`
        holds the whole conversation.

        An abstention is a message with a `refusal`. With `stream` come OpenAI's events, the last one with the whole
        response."""
        state = request.state
        ask, overrides = make_chat_ask(
            service.bundle,
            chat_of(body),
            request_id=state.request_id,
            headers=request.headers,
            received=state.received,
        )
        ask = charged_to(ask, state.key_use.account)
        if body.stream:
            return EventStream(response_events(service, ask, body, overrides))
        answer = await while_connected(request, service.triage(ask))
        return JSONResponse(response_body(answer, body, on_abstain=overrides.on_abstain))

    return router


def _triage_routes(service: TriageService) -> APIRouter:
    router = APIRouter(tags=["triage"])

    @router.post(
        "/v1/triage",
        summary="Triage a problem",
        response_model=TriageResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
        openapi_extra=examples_of("triage"),
    )
    async def triage(body: TriageRequest, request: Request) -> TriageResponse | Response:
        """Draw candidates, check and score them, and accept, try again or abstain. The full record of one decision.

        With `stream` come events: `raydebm.progress` while it works, `raydebm.result` with the record (or
        `raydebm.error`), then `[DONE]`."""
        state = request.state
        ask = triage_ask(service, body, request_id=state.request_id, headers=request.headers, received=state.received)
        ask = charged_to(ask, state.key_use.account)
        if body.stream:
            return EventStream(triage_events(service, ask))
        return await while_connected(request, service.triage(ask))

    @router.post(
        "/v1/triage/batch",
        summary="Triage many problems",
        response_model=BatchResponse,
        openapi_extra=examples_of("batch"),
    )
    async def batch(body: BatchRequest, request: Request) -> BatchResponse:
        """Many of them; each is answered or failed by itself, and the status is 200."""
        state = request.state
        work = triage_batch(
            service,
            body,
            request_id=state.request_id,
            headers=request.headers,
            received=state.received,
            key_use=state.key_use,
        )
        return await while_connected(request, work)

    return router


def _ceiling_route() -> APIRouter:
    router = APIRouter(tags=["operations"])

    @router.get("/v1/ceilings", response_model=list[CeilingBody], summary="Show what is left of the day's ceilings")
    async def ceilings(request: Request) -> list[CeilingBody]:
        """What the caller and everybody together may still spend today; empty where nothing is limited."""
        account = request.state.key_use.account
        return [] if account is None else await account.status()

    return router


def _scoring_routes(service: TriageService) -> APIRouter:
    router = APIRouter(tags=["scoring"])

    @router.post(
        "/v1/score",
        summary="Score candidates",
        response_model=ScoreResponse,
        openapi_extra=examples_of("score"),
    )
    async def score(body: ScoreRequest, request: Request) -> ScoreResponse:
        """Energies of given candidates. `score` = -energy: higher is better."""
        work = service.score(body, request_id=request.state.request_id, received=request.state.received)
        return await while_connected(request, work)

    @router.post(
        "/v1/verify",
        summary="Verify candidates",
        response_model=VerifyResponse,
        openapi_extra=examples_of("verify"),
    )
    async def verify_route(body: VerifyRequest, request: Request) -> VerifyResponse:
        """Approve, redo, reject, tie or abstain: the decision about given candidates, by the rule of triage."""
        state = request.state
        work = verify(service, body, request_id=state.request_id, received=state.received)
        return await while_connected(request, work)

    # Cohere's client asks for /v1/rerank or /v2/rerank, vLLM's and Jina's for /v1/rerank or /rerank.
    @router.post(
        "/v1/rerank",
        summary="Rerank documents",
        response_model=RerankResponse,
        openapi_extra=examples_of("rerank"),
    )
    @router.post("/v2/rerank", response_model=RerankResponse, include_in_schema=False)
    @router.post("/rerank", response_model=RerankResponse, include_in_schema=False)
    async def rerank_route(body: RerankRequest, request: Request) -> RerankResponse:
        """Documents in the order of their `relevance_score`, which is -energy: higher is better, and no probability."""
        return await while_connected(request, rerank(service, body, request_id=request.state.request_id))

    @router.post(
        "/get_reward",
        summary="Give rewards",
        response_model=RewardResponse,
        openapi_extra=examples_of("rewards"),
    )
    async def get_reward(
        body: RewardRequest, request: Request, settings: Annotated[RewardSettings, Query()]
    ) -> RewardResponse:
        """OpenRLHF's remote reward model: reward = -(mu + lambda E_constraint) - sigma_weight sigma, at least floor."""
        return await while_connected(request, get_rewards(service, body, settings, request_id=request.state.request_id))

    return router


def _unwritten(writer: DecisionWriter | None) -> list[str]:
    if writer is None or writer.last_error is None:
        return []
    return [
        redact(
            f"decisions cannot be written ({writer.num_waiting} wait, {writer.num_dropped} lost): {writer.last_error}"
        )
    ]


def _health_route(service: TriageService, writer: DecisionWriter | None) -> APIRouter:
    router = APIRouter(tags=["operations"])

    @router.get("/health", response_model=HealthBody, summary="Tell readiness")
    async def health() -> dict[str, Any]:
        """200 when scorer and generators are loaded; 503 with the reason otherwise."""
        parts = await service.backend.status()
        bundle = service.bundle
        return {
            "status": "ok",
            "tasks": list(bundle.tasks),
            "policies": {name: bundle.in_time(policy).to_json() for name, policy in bundle.policies.items()},
            "versions": dict(bundle.versions),
            "warnings": [*service.notices(), *_unwritten(writer)],
            **parts,
        }

    return router
