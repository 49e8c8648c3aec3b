"""Changes of a running service: the settings that can change, and their exchange.

A change builds a new application next to the old one: bundle, policy, adapters, limits and keys are read and checked,
then exchanged at once. Open requests finish on their own application, so none mixes two policies, ensembles or sets of
limits.
Does not know: Ray.
"""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from pydantic import ValidationError
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from raydebm.errors import ConfigError
from raydebm.service.settings.app_args import AppArgs
from raydebm.service.settings.bundle import Bundle

CHANGEABLE = (
    "policy",
    "checkpoint",
    "policies",
    "further_runs",
    "limits",
    "allowed_hosts",
    "max_deadline_s",
    "max_body_bytes",
)
"""Application arguments that the ingress deployment's ``user_config`` may replace, each as a whole."""
REVISION = "revision"
"""Key without a meaning: a new value reloads everything, such as a policy file under the same name."""


def changed_args(args: AppArgs, user_config: Mapping[str, Any]) -> AppArgs:
    """The application's arguments under a ``user_config``.

    Raises:
        ConfigError: a key that cannot be changed while the service runs, or a value that is not as described.
    """
    for key in user_config:
        if key not in (*CHANGEABLE, REVISION):
            raise ConfigError(
                f"user_config key {key!r} cannot be changed while the service runs; it can take "
                f"{', '.join((*CHANGEABLE, REVISION))}. Everything else belongs in `args`, which starts new replicas"
            )
    changes = {key: value for key, value in user_config.items() if key != REVISION}
    try:
        return AppArgs.model_validate({**args.model_dump(by_alias=True, exclude_unset=True), **changes})
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"user_config: {where}: {first['msg']}") from error


def check_same_evidence(running: Bundle, wanted: Bundle) -> None:
    """Check the baselines that are evidence, which replicas load only at their start.

    Raises:
        ConfigError: the first run has other baselines than the running service.
    """
    if wanted.recipe.evidence != running.recipe.evidence:
        raise ConfigError(
            f"recipe.json of the run (recipe {wanted.recipe.name!r}) counts other baselines as evidence than the "
            "service was started with; deploy with changed `args` to start them"
        )


class Exchangeable:
    """An ASGI application that can be replaced while requests run."""

    def __init__(self, app: FastAPI) -> None:
        self._fastapi: FastAPI = app
        self._app: ASGIApp = app

    def replace(self, app: FastAPI, wrapped: ASGIApp | None = None) -> None:
        """Route new requests to another application.

        Args:
            app: the application with the routes.
            wrapped: the same application with its middleware. Default: ``app``.
        """
        self._fastapi, self._app = app, app if wrapped is None else wrapped

    @property
    def routes(self) -> list[BaseRoute]:
        """The application's routes, whose patterns label Serve's metrics."""
        return self._fastapi.routes

    @property
    def router(self) -> Any:
        """The FastAPI application's router, which Serve reads."""
        return self._fastapi.router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
