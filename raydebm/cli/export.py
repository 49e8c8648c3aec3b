"""`raydebm export`: the scorer of a run as a folder for the Hugging Face hub."""

from pathlib import Path
from typing import Annotated

import typer

from raydebm.cli.console import say


def export(
    out: Annotated[Path, typer.Option("--out", help="Folder to write; must be missing or empty.")],
    run_dir: Annotated[str, typer.Option("--run-dir", help="A finished run: a folder or a URL.")] = "runs/demo",
    license: Annotated[str | None, typer.Option(help="Your licence, by the hub's name, such as apache-2.0.")] = None,
) -> None:
    """Write a scorer and its card for the Hugging Face hub.

    `hf upload USER/NAME FOLDER` publishes it.
    """
    from raydebm.pipeline.export import export_scorer

    left_out = export_scorer(run_dir, out, license=license)
    say(f"scorer written to {out}; publish it with `hf upload USER/NAME {out}`")
    for line in left_out:
        say(f"- left out: {line}")
