"""Routes for operators: health, and what is left of the day's ceilings."""

from typing import Any

from fastapi import APIRouter, Request

from raydebm.decisions.writer import DecisionWriter
from raydebm.serving.api.operations.options import policies_of
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

    @router.get("/health", response_model=HealthBody, summary="Tell readiness")
    async def health() -> dict[str, Any]:
        """200 when scorer and generators are loaded; 503 with the reason otherwise."""
        parts = await service.backend.status()
        bundle = service.bundle
        return {
            "status": "ok",
            "tasks": list(bundle.tasks),
            "policies": policies_of(bundle),
            "versions": dict(bundle.versions),
            "runs": {name: dict(bundle.of(name).versions) for name in bundle.tasks},
            "warnings": [*service.warnings(), *_unwritten(writer)],
            **parts,
        }

    return router
