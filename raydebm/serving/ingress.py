"""The deployment that speaks HTTP: the routes over the service over the handles."""

from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle

from raydebm.serving.bundle import Bundle
from raydebm.serving.handles import HandleBackend
from raydebm.serving.keys import load_keyring
from raydebm.serving.logs import configure_logs
from raydebm.serving.metrics import RayMeter
from raydebm.serving.records_writer import writer_of
from raydebm.serving.routes import create_app
from raydebm.serving.service import TriageService


@serve.ingress()
class TriageIngress:
    """Runs the triage loop; holds no model and no provider's key, so that many replicas are cheap."""

    def __init__(
        self,
        bundle: Bundle,
        generator: DeploymentHandle[Any],
        scorer: DeploymentHandle[Any],
        constraint: DeploymentHandle[Any],
    ) -> None:
        configure_logs()
        self._keyring = load_keyring(bundle.limits.keys_file)
        self._records = writer_of(bundle.records)
        self._service = TriageService(
            bundle, HandleBackend(generator, scorer, constraint), meter=RayMeter(), records=self._records
        )

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Called by Serve when a replica starts; the routes need this replica's handles."""
        return create_app(self._service, keyring=self._keyring, echo_request_id=False)

    def __del__(self) -> None:
        """Called by Serve after the last request of a replica that is taken down."""
        records = getattr(self, "_records", None)  # absent when the replica could not start
        if records is not None:
            records.close()
