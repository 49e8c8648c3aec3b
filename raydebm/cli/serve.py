"""``raydebm serve``: a finished run as a service on this machine."""

import os
from typing import Annotated

import typer

from raydebm.cli.parameters import MAX_PORT
from raydebm.errors import ConfigError

LINES_AS_THEY_ARE = {"RAY_DISABLE_WORKER_LOG_PREFIX": "1", "RAY_DEDUP_LOGS": "0"}
"""Ray's settings under which it prints the log lines of replicas without their names in front, and all of them: it
takes two requests of two replicas, which differ by numbers alone, for one line that is repeated."""


def serve(
    run_dir: Annotated[str, typer.Option("--run-dir", help="A finished run; a folder or a URL.")] = "runs/demo",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=MAX_PORT, help="Port to listen on.")] = 8000,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="A name under which a service without keys answers; repeatable.")
    ] = None,
    further_run: Annotated[
        list[str] | None, typer.Option(help="A finished run of another task, behind the same address; repeatable.")
    ] = None,
) -> None:
    """Serve finished runs until Ctrl-C or SIGTERM.

    In production: `serve run serve_config.yaml`.
    """
    for name, value in LINES_AS_THEY_ARE.items():
        os.environ.setdefault(name, value)  # before Ray is imported, which reads them then

    from pydantic import ValidationError

    from raydebm.config.section import problems_in
    from raydebm.run.addresses import resolved
    from raydebm.serving.logs import whole_lines_on_stderr
    from raydebm.serving.ray.app import serve_until_interrupted
    from raydebm.serving.settings.app_args import AppArgs

    given = {
        "run_dir": resolved(run_dir),
        "further_runs": [{"run_dir": resolved(folder)} for folder in further_run or ()],
        "allowed_hosts": (host, *(allowed_host or ())),
        "policies": {"text": {"on_abstain": "text"}},
    }
    try:
        args = AppArgs.model_validate(given)
    except ValidationError as error:
        problems = "; ".join(problems_in(error, root="options"))
        raise ConfigError(f"the options make no service: {problems}") from error
    with whole_lines_on_stderr():
        serve_until_interrupted(args, host=host, port=port)
