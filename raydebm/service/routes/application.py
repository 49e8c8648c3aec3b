"""The ASGI application: all routes over one service, the guard around them, and errors in OpenAI's form."""

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from raydebm import __version__
from raydebm.service.access import PUBLIC_PATHS, Guard, Intake, Keyring, error_response, http_error, validation_error
from raydebm.service.core import TriageService
from raydebm.service.page import page_paths, page_routes, static_files
from raydebm.service.routes.chat import chat_routes
from raydebm.service.routes.openapi import ERRORS, describe
from raydebm.service.routes.operations import health_route, sample_routes
from raydebm.service.routes.responses import response_routes
from raydebm.service.routes.scoring import scoring_routes
from raydebm.service.routes.stored import RecordsDesk, claim_monitor, record_routes
from raydebm.service.routes.streams import triage_routes
from raydebm.service.spending import Ledger


def create_app(
    service: TriageService,
    *,
    keyring: Keyring | None = None,
    intake: Intake | None = None,
    ledger: Ledger | None = None,
) -> FastAPI:
    """The ASGI application of a service. ``intake`` is passed on by the previous application when it is reloaded.
    Default of ``ledger``: a ledger in the bundle's ``ledger_file``, if it has one."""
    app = FastAPI(
        title="raydebm",
        version=__version__,
        summary="Chooses among LLM answers, and abstains when none can be trusted.",
        # FastAPI's own pages load their scripts from another host.
        docs_url=None,
        redoc_url=None,
        responses=ERRORS,
        # A page of another site can make a browser send a body, but not with JSON's content type.
        strict_content_type=True,
        # FastAPI's own instrumentation would send query strings and exception messages (see ``Guard``).
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    bundle, claims = service.bundle, service.claims or claim_monitor(service.bundle, service.meter)
    routers = (
        chat_routes(service),
        response_routes(service),
        triage_routes(service),
        scoring_routes(service),
        health_route(service),
        record_routes(None if claims is None else RecordsDesk(service, claims), watched=bundle.args.auditors or ()),
        sample_routes(bundle),
        page_routes(),
    )
    app.add_middleware(
        Guard,
        bundle=bundle,
        meter=service.meter,
        public_paths=PUBLIC_PATHS | page_paths(),
        keyring=keyring,
        intake=intake,
        ledger=ledger or (None if bundle.ledger_file is None else Ledger(bundle.ledger_file)),
        routes=[route for router in routers for route in router.routes],
    )

    @app.exception_handler(RequestValidationError)
    async def on_validation_error(request: Request, error: RequestValidationError) -> JSONResponse:
        return error_response(validation_error(error))

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> JSONResponse:
        return error_response(http_error(error), headers=error.headers)

    for router in routers:
        app.include_router(router)
    app.mount("/static", static_files())
    describe(app, bundle, keyed=keyring is not None)
    return app
