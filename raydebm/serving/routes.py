"""The HTTP surface: routes, and failures in OpenAI's form. Knows the service, not Ray."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from raydebm import __version__
from raydebm.errors import RaydebmError
from raydebm.serving.asking import last_user_message, make_ask
from raydebm.serving.chat import completion_body, make_chat_ask, models_body
from raydebm.serving.errors import as_service_error, error_response, http_error, validation_error
from raydebm.serving.guard import Guard
from raydebm.serving.schema import (
    ChatOverrides,
    ChatRequest,
    ScoreRequest,
    ScoreResponse,
    TriageRequest,
    TriageResponse,
)
from raydebm.serving.service import TriageService
from raydebm.serving.streaming import chat_events


def create_app(service: TriageService, *, echo_request_id: bool = True) -> FastAPI:
    """The ASGI application over one service; for ``echo_request_id`` see ``Guard``."""
    app = FastAPI(
        title="raydebm",
        version=__version__,
        summary="Chooses among LLM answers, and abstains when none can be trusted.",
        docs_url="/docs",
        redoc_url=None,
    )
    app.add_middleware(Guard, max_body_bytes=service.bundle.max_body_bytes, echo_request_id=echo_request_id)
    _add_error_handlers(app)
    _add_triage_routes(app, service)
    _add_chat_routes(app, service)
    _add_health_route(app, service)
    return app


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(RaydebmError)
    async def on_raydebm_error(request: Request, error: RaydebmError) -> JSONResponse:
        return error_response(as_service_error(error))

    @app.exception_handler(RequestValidationError)
    async def on_validation_error(request: Request, error: RequestValidationError) -> JSONResponse:
        return error_response(validation_error(error))

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> JSONResponse:
        return error_response(http_error(error))


def _add_triage_routes(app: FastAPI, service: TriageService) -> None:
    @app.post("/v1/triage", response_model=TriageResponse, response_model_exclude_unset=False)
    async def triage(body: TriageRequest, request: Request) -> TriageResponse:
        """Draw candidates, check and score them, and accept, try again or abstain."""
        problem, ignored = (body.problem, 0) if body.problem is not None else last_user_message(body.messages or [])
        ask = make_ask(
            service.bundle,
            body,
            request_id=request.state.request_id,
            task_name=body.task,
            problem=problem,
            ignored_messages=ignored,
        )
        return await service.triage(ask)

    @app.post("/v1/score", response_model=ScoreResponse)
    async def score(body: ScoreRequest, request: Request) -> ScoreResponse:
        """Energies of given candidates. ``score`` = -energy."""
        return await service.score(body, request_id=request.state.request_id)


def _add_chat_routes(app: FastAPI, service: TriageService) -> None:
    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        """One model per task, and ``raydebm/auto``."""
        return models_body(service.bundle)

    @app.post("/v1/chat/completions", response_model=None)
    async def chat(body: ChatRequest, request: Request) -> Response:
        """OpenAI's chat completions; the last user message is the problem."""
        ask = make_chat_ask(service.bundle, body, request_id=request.state.request_id)
        if body.stream:
            return StreamingResponse(
                chat_events(service, ask, body),
                media_type="text/event-stream",
                headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
            )
        answer = await service.triage(ask)
        on_abstain = (body.raydebm or ChatOverrides()).on_abstain
        return JSONResponse(completion_body(answer, model=body.model, on_abstain=on_abstain))


def _add_health_route(app: FastAPI, service: TriageService) -> None:
    @app.get("/health")
    async def health() -> dict[str, Any]:
        """200 when scorer and generators are loaded; 503 with the reason otherwise."""
        parts = await service.backend.status()
        bundle = service.bundle
        return {
            "status": "ok",
            "tasks": list(bundle.tasks),
            "policies": {name: policy.to_json() for name, policy in bundle.policies.items()},
            "versions": dict(bundle.versions),
            **parts,
        }
