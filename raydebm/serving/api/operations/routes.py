"""Routes for operators: health, and what is left of the day's ceilings."""

from typing import Any

from fastapi import APIRouter, Request

from raydebm import __version__
from raydebm.decisions.writer import DecisionWriter
from raydebm.errors import RaydebmError, ServiceError
from raydebm.serving.api.schema.chat_bodies import HealthBody
from raydebm.serving.api.schema.decision_bodies import CeilingBody
from raydebm.serving.core.service import TriageService
from raydebm.serving.logs import redact


def ceiling_route() -> APIRouter:
    """What is left of the day's ceilings."""
    router = APIRouter(tags=["operations"])

    @router.get("/v1/ceilings", response_model=list[CeilingBody], summary="Show what is left of the day's ceilings")
    async def ceilings(request: Request) -> list[CeilingBody]:
        """What the caller and everybody together may still spend today; empty where nothing is limited."""
        account = request.state.account
        statuses = [] if account is None else await account.status()
        return [CeilingBody.model_validate(status) for status in statuses]

    return router


def _unwritten(writer: DecisionWriter | None) -> list[str]:
    if writer is None or writer.last_error is None:
        return []
    return [
        redact(
            f"decisions cannot be written ({writer.num_waiting} wait, {writer.num_dropped} lost): {writer.last_error}"
        )
    ]


def health_route(service: TriageService, writer: DecisionWriter | None) -> APIRouter:
    """
    Args:
        service: whose parts must work.
        writer: of decisions, whose trouble is a warning; None where no decision is stored.
    """
    router = APIRouter(tags=["operations"])

    @router.get("/health", response_model=HealthBody, response_model_exclude_none=True, summary="Tell readiness")
    async def health(request: Request) -> dict[str, Any]:
        """200 when scorer and generators are loaded; 503 otherwise.

        Where the service has API keys, a request without one is told `status` and `version` alone."""
        ready = {"status": "ok", "version": __version__}
        try:
            parts = await service.backend.status()
        except RaydebmError as error:
            if request.state.may_call:
                raise
            message = "the service is not ready; ask with an API key for the reason"
            raise ServiceError(message, 503, "not_ready") from error
        if not request.state.may_call:
            return ready
        bundle = service.bundle
        return {
            **ready,
            "tasks": list(bundle.tasks),
            "versions": dict(bundle.versions),
            "runs": {name: dict(bundle.of(name).versions) for name in bundle.tasks},
            "warnings": [*service.warnings(), *_unwritten(writer)],
            **parts,
        }

    return router
