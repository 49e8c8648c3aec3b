"""The ASGI application: all routes over one service, the guard around them, and errors in OpenAI's form."""

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from raydebm import __version__
from raydebm.errors import RaydebmError, as_service_error
from raydebm.service.access.admission import Intake
from raydebm.service.access.guard import PUBLIC_PATHS, Guard, GuardSettings
from raydebm.service.access.keys import Keyring
from raydebm.service.core.service import TriageService
from raydebm.service.error_form import error_response, http_error, validation_error
from raydebm.service.page import page_paths, page_routes
from raydebm.service.routes.chat import chat_routes
from raydebm.service.routes.decisions import DecisionArchive, decision_routes
from raydebm.service.routes.openapi import ERRORS, describe
from raydebm.service.routes.operations import health_route, sample_routes
from raydebm.service.routes.outcomes import OutcomeDesk, claim_monitor, outcome_routes
from raydebm.service.routes.responses import response_routes
from raydebm.service.routes.scoring import scoring_routes
from raydebm.service.routes.triage import triage_routes
from raydebm.service.spending import Ledger
from raydebm.service.store.reader import DecisionReader
from raydebm.service.store.writer import DecisionWriter


def create_app(
    service: TriageService,
    *,
    keyring: Keyring | None = None,
    echo_request_id: bool = True,
    intake: Intake | None = None,
    ledger: Ledger | None = None,
) -> FastAPI:
    """The ASGI application over one service.

    Args:
        service: service that answers the requests.
        keyring: keys of the clients. Default: no key is needed.
        echo_request_id: see ``GuardSettings``.
        intake: counter of open requests, shared with the previous application. Default: a new one.
        ledger: ledger of daily spending. Default: one on the bundle's file.
    """
    app = FastAPI(
        title="raydebm",
        version=__version__,
        summary="Chooses among LLM answers, and abstains when none can be trusted.",
        # FastAPI's own pages load their scripts from another host.
        docs_url=None,
        redoc_url=None,
        responses=ERRORS,
        # A page of another site can make a browser send a body without this type, but not one with it.
        strict_content_type=True,
        # FastAPI's own telemetry would send query strings and messages of exceptions (see access.guard).
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    routers, bundle = _routers(service), service.bundle
    app.add_middleware(
        Guard,
        settings=GuardSettings(
            max_body_bytes=bundle.max_body_bytes,
            limits=bundle.limits,
            public_paths=PUBLIC_PATHS | page_paths(),
            allowed_hosts=frozenset(name.lower() for name in bundle.allowed_hosts),
            echo_request_id=echo_request_id,
            keyring=keyring,
            meter=service.meter,
            intake=intake or Intake(),
            ledger=ledger or (None if bundle.ledger_file is None else Ledger(bundle.ledger_file)),
        ),
        routes=[route for router in routers for route in router.routes],
    )
    _add_error_handlers(app)
    for router in routers:
        app.include_router(router)
    describe(app, bundle, keyed=keyring is not None)
    return app


def _routers(service: TriageService) -> Sequence[APIRouter]:
    writer = service.records if isinstance(service.records, DecisionWriter) else None
    claims = service.claims or claim_monitor(service.bundle, service.meter)
    reader = None if claims is None else DecisionReader(claims.outcomes.records, outcomes=claims.outcomes)
    stored = None if reader is None else DecisionArchive(reader, claims)
    desk = None if reader is None or claims is None else OutcomeDesk(service, reader, claims)
    return (
        chat_routes(service),
        response_routes(service),
        triage_routes(service),
        scoring_routes(service),
        health_route(service, writer),
        decision_routes(stored),
        outcome_routes(desk, watched=service.bundle.auditors or ()),
        sample_routes(service.bundle),
        page_routes(),
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
