"""What of a running service can be changed, and how the change reaches requests.

A change is a new application next to the old one: bundle, policy, adapters, limits and keys are read and checked, then
everything is exchanged at once. Requests that run finish on the application that they began with, so none mixes two
policies, two ensembles or two sets of limits.
Does not know: Ray.
"""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from pydantic import ValidationError
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from raydebm.errors import ConfigError
from raydebm.serving.settings.app_args import AppArgs
from raydebm.serving.settings.bundle import Bundle

CHANGEABLE = (
    "policy",
    "checkpoint",
    "policies",
    "further_runs",
    "limits",
    "allowed_hosts",
    "max_deadline_s",
    "max_problem_chars",
    "max_candidate_chars",
    "max_body_bytes",
)
"""The application's arguments that the ingress deployment's ``user_config`` may replace, each as a whole."""
REVISION = "revision"
"""A key without a meaning: a new value has everything read again, such as a policy file under the same name."""


def changed_args(args: AppArgs, user_config: Mapping[str, Any]) -> AppArgs:
    """The application's arguments under a ``user_config``.

    Raises:
        ConfigError: a key that cannot be changed while the service runs, or a value that is not as described.
    """
    for key in user_config:
        if key not in (*CHANGEABLE, REVISION):
            raise ConfigError(
                f"user_config key {key!r} cannot be changed while the service runs; it can take "
                f"{', '.join((*CHANGEABLE, REVISION))}. Everything else belongs into `args`, which starts new replicas"
            )
    changes = {key: value for key, value in user_config.items() if key != REVISION}
    try:
        return AppArgs.model_validate({**args.model_dump(by_alias=True, exclude_unset=True), **changes})
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"user_config: {where}: {first['msg']}") from error


def check_same_evidence(running: Bundle, wanted: Bundle) -> None:
    """Check what replicas load when they start and never again: the baselines that are evidence.

    Raises:
        ConfigError: the first run counts other baselines than the service was started with.
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
        """Requests that come from now on go here.

        Args:
            app: has the routes.
            wrapped: the same with something around it; None: nothing.
        """
        self._fastapi, self._app = app, app if wrapped is None else wrapped

    @property
    def routes(self) -> list[BaseRoute]:
        """Serve labels its own metrics with the routes' patterns."""
        return self._fastapi.routes

    @property
    def router(self) -> Any:
        """The router of the FastAPI application, which Serve looks at."""
        return self._fastapi.router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
