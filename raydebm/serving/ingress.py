"""The deployment that speaks HTTP: the routes over the service over the handles."""

from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle

from raydebm.serving.bundle import Bundle
from raydebm.serving.handles import HandleBackend
from raydebm.serving.routes import create_app
from raydebm.serving.service import TriageService


@serve.ingress()
class TriageIngress:
    """Runs the triage loop; holds no model and no key, so that many replicas are cheap."""

    def __init__(
        self,
        bundle: Bundle,
        generator: DeploymentHandle[Any],
        scorer: DeploymentHandle[Any],
        constraint: DeploymentHandle[Any],
    ) -> None:
        self._service = TriageService(bundle, HandleBackend(generator, scorer, constraint))

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Called by Serve when a replica starts; the routes need this replica's handles."""
        return create_app(self._service, echo_request_id=False)
