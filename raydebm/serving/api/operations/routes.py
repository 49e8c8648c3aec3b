"""Routes for operators: health, what is left of the day's ceilings, and live figures."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from raydebm.decision.guarantee.drift_monitor import DriftMonitor
from raydebm.decisions.writer import DecisionWriter
from raydebm.errors import ServiceError
from raydebm.serving.api.operations.live import LIVE_ROUTE, LiveMeter
from raydebm.serving.api.operations.options import policies_of
from raydebm.serving.api.schema.chat_bodies import HealthBody
from raydebm.serving.api.schema.decision_bodies import CeilingBody
from raydebm.serving.api.schema.live_bodies import LiveFigures, WriterFigures
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


def live_route(
    meter: LiveMeter | None, writer: DecisionWriter | None, monitors: Mapping[str, DriftMonitor]
) -> APIRouter:
    """
    Args:
        meter: what this replica saw; None where nothing remembers it; then the route is 404.
        writer: None where no decision is stored.
        monitors: by task, what compares generators with their calibration.
    """
    router = APIRouter(tags=["operations"])

    @router.get(LIVE_ROUTE, summary="Show live figures", response_model=LiveFigures)
    async def live(window_s: Annotated[int, Query(ge=60, le=3600)] = 900) -> LiveFigures:
        """What the replica that answers saw in the last `window_s` seconds: requests, times, decisions, tokens, cost.

        Every replica counts for itself; `replica` tells them apart, and bins and bars can be added up."""
        if meter is None:
            raise ServiceError("this service keeps no live figures", 404, "no_figures")
        figures = None if writer is None else _writer_figures(writer)
        return meter.figures(window_s, writer=figures, monitors=monitors)

    return router


def _writer_figures(writer: DecisionWriter) -> WriterFigures:
    return WriterFigures(
        written=writer.num_written,
        dropped=writer.num_dropped,
        waiting=writer.num_waiting,
        # Words about storage may hold its address with the credentials in it.
        last_error=None if writer.last_error is None else redact(writer.last_error),
    )


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
