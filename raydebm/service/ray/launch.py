"""Deploy ``serve_config.yaml`` from Python, as ``serve run serve_config.yaml`` does, with a few values replaced."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ray import serve
from ray.serve._private.api import serve_start
from ray.serve.schema import ApplicationStatus, ServeDeploySchema

from raydebm.errors import ConfigError, ResourceError, last_line
from raydebm.service.ray.app import failures, is_listening, started
from raydebm.service.ray.shutdown import stop_serve
from raydebm.user_files import text_of, yaml_value

READY_TIMEOUT_S = 300.0
"""Replicas start in 20 s on two free cores, and took more than 120 s next to a training."""


def read_serve_config(path: str | Path) -> dict[str, Any]:
    """The YAML of a Serve configuration.

    Raises:
        ConfigError: the file is missing, is not YAML, or has no applications.
    """
    where = f"Serve configuration {str(path)!r}"
    tree = yaml_value(
        text_of(path, what="Serve configuration", missing="; `raydebm init` writes serve_config.yaml"), where=where
    )
    if not isinstance(tree, dict) or not tree.get("applications"):
        raise ConfigError(f"{where} has no applications")
    return tree


@contextmanager
def deployed(
    path: str | Path, *, port: int, args: Mapping[str, Any], host: str = "127.0.0.1", timeout_s: float = READY_TIMEOUT_S
) -> Iterator[str]:
    """Deploy a configuration into the current Ray session; yields the base URL, and removes the application at the end.

    Args:
        path: the YAML file.
        port: replaces ``http_options.port``.
        args: merged into the first application's ``args``.
        host: replaces ``http_options.host``.
        timeout_s: time limit for the replicas to become healthy.

    Raises:
        ResourceError: the application did not become healthy; the message quotes Serve.
    """
    tree = read_serve_config(path)
    application = tree["applications"][0]
    application["args"] = {**application.get("args", {}), **args}
    tree["http_options"] = {**tree.get("http_options", {}), "host": host, "port": port}
    config = ServeDeploySchema.model_validate(tree)
    deadline = time.monotonic() + timeout_s
    logging.getLogger("ray.serve").setLevel(logging.WARNING)  # it would log its start
    try:
        controller: Any = started(
            lambda: serve_start(
                http_options=config.http_options.model_dump(),
                proxy_location=config.proxy_location,
                global_logging_config=None,
            )
        )
        controller.deploy_apps(config, _blocking=False)
        _wait_until_running(application.get("name", "default"), deadline=deadline, timeout_s=timeout_s)
        yield f"http://{host}:{port}"
    finally:
        stop_serve()


def _wait_until_running(name: str, *, deadline: float, timeout_s: float) -> None:
    while time.monotonic() < deadline:
        status = serve.status()
        application = status.applications.get(name)
        is_running = application is not None and application.status == ApplicationStatus.RUNNING
        if is_running and is_listening(status):
            return
        if application is not None and application.status == ApplicationStatus.DEPLOY_FAILED:
            reason = failures(application.deployments) or last_line(application.message)
            raise ResourceError(f"Serve application {name!r} failed to deploy: {reason}")
        time.sleep(0.2)
    raise ResourceError(f"Serve application {name!r} was not healthy after {timeout_s:g} s; see `serve status`")
