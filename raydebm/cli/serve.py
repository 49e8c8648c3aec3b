"""``raydebm serve`` and ``export``: serve finished runs on this machine, and write a scorer for the hub."""

import os
from pathlib import Path
from typing import Annotated

import typer

from raydebm.cli.console import say
from raydebm.cli.parameters import MAX_PORT

LINES_AS_THEY_ARE = {"RAY_DISABLE_WORKER_LOG_PREFIX": "1", "RAY_DEDUP_LOGS": "0"}
"""Ray settings for the log lines of replicas: no prefix, and no deduplication, which would merge lines that differ only
in numbers."""


def serve(
    run_dir: Annotated[
        str, typer.Option("--run-dir", help="A finished run: a folder, a URL, or demo for the packaged one.")
    ] = "demo",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=MAX_PORT, help="Port to listen on; 0 picks a free one.")] = 8000,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="Further host name to accept if there are no API keys; repeatable.")
    ] = None,
    further_run: Annotated[
        list[str] | None, typer.Option(help="Finished run of another task to serve at the same address; repeatable.")
    ] = None,
) -> None:
    """Serve finished runs until Ctrl-C or SIGTERM.

    Default: the packaged run of the task Knights & Knaves. In production, use `serve run serve_config.yaml`.
    """
    for name, value in LINES_AS_THEY_ARE.items():
        os.environ.setdefault(name, value)  # before the import of Ray, which reads them

    from raydebm.generators.endpoint.vllm import free_port
    from raydebm.run.addresses import resolved, run_address
    from raydebm.service.ray.app import serve_until_interrupted
    from raydebm.service.settings import parse_args

    given = {
        "run_dir": resolved(run_address(run_dir)),
        "further_runs": [{"run_dir": resolved(run_address(folder))} for folder in further_run or ()],
        "allowed_hosts": (host, *(allowed_host or ())),
        "policies": {"text": {"on_abstain": "text"}},
    }
    args = parse_args(given, where="the options")
    serve_until_interrupted(args, host=host, port=port or free_port(host))


def export(
    out: Annotated[Path, typer.Option("--out", help="Folder to write; must be missing or empty.")],
    run_dir: Annotated[str, typer.Option("--run-dir", help="A finished run: a folder or a URL.")] = "runs/demo",
    license: Annotated[str | None, typer.Option(help="Your licence, as the hub names it, such as apache-2.0.")] = None,
) -> None:
    """Write a scorer and its model card for the Hugging Face hub.

    `hf upload USER/NAME FOLDER` then publishes the folder.
    """
    from raydebm.pipeline.export import export_scorer

    left_out = export_scorer(run_dir, out, license=license)
    say(f"scorer written to {out}; publish it with `hf upload USER/NAME {out}`")
    for line in left_out:
        say(f"- left out: {line}")
