"""A Serve configuration deployed into the running Ray session."""

import contextlib
import time
from pathlib import Path

import yaml
from ray import serve
from ray.serve._private.api import serve_start
from ray.serve.schema import ServeDeploySchema

from raydebm.service.ray.app import failures, is_listening, started, stop_serve


def configured(path, *, port, **args):
    """The file's configuration, listening here, with these arguments of its application."""
    tree = yaml.safe_load(Path(path).read_text())
    tree["http_options"] |= {"host": "127.0.0.1", "port": port}
    tree["applications"][0]["args"] |= args
    return ServeDeploySchema.model_validate(tree)


@contextlib.contextmanager
def deployed(path, *, port, timeout_s=600):
    """Yields once every replica of the file's first application is healthy; removes it at the end."""
    config = configured(path, port=port)
    name, deadline = config.applications[0].name, time.monotonic() + timeout_s
    try:
        controller = started(
            lambda: serve_start(
                http_options=config.http_options.model_dump(),
                proxy_location=config.proxy_location,
                global_logging_config=None,
            )
        )
        controller.deploy_apps(config, _blocking=False)
        while True:
            status = serve.status()
            known = status.applications.get(name)
            if known is not None and known.status == "RUNNING" and is_listening(status):
                break
            failed = known is not None and known.status == "DEPLOY_FAILED"
            assert not failed, failures(known.deployments)
            assert time.monotonic() < deadline, status
            time.sleep(0.2)
        yield
    finally:
        stop_serve()
