"""``raydebm init``: a recipe, ``serve_config.yaml`` and ``cluster.yaml`` to start from."""

from pathlib import Path
from typing import Annotated

import typer

from raydebm.cli import starter
from raydebm.cli.console import console
from raydebm.errors import ConfigError

PACKAGED_RUN, OWN_RUN = b"      run_dir: demo ", b"      run_dir: runs/demo "
"""A line of the repository's serve_config.yaml, and one that serves the run of the written recipe."""


def init(
    folder: Annotated[Path, typer.Argument(help="Where to write; created where it is missing.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
) -> None:
    """Write a recipe, serve_config.yaml and cluster.yaml.

    The recipe runs offline on embedded models; serve_config.yaml serves its run.
    """
    for file in write_starter(folder, force=force):
        console.print(f"wrote {file}", soft_wrap=True)
    recipe = folder / starter.RECIPE.name
    console.print(f"plan it:  raydebm run --config {recipe} --dry-run", soft_wrap=True)
    console.print(f"run it:   raydebm run --config {recipe}", soft_wrap=True)
    console.print(f"serve it: serve run {folder / starter.SERVE_CONFIG.name}", soft_wrap=True)


def write_starter(folder: Path, *, force: bool) -> list[Path]:
    """Write the files, all or none of them.

    Raises:
        ConfigError: a file exists and ``force`` is False, or the folder cannot be written.
    """
    targets = {folder / source.name: source.read_bytes() for source in starter.FILES}
    serve_config = folder / starter.SERVE_CONFIG.name
    targets[serve_config] = targets[serve_config].replace(PACKAGED_RUN, OWN_RUN)
    existing = [target.name for target in targets if target.exists()]
    if existing and not force:
        raise ConfigError(f"{', '.join(existing)} in {str(folder)!r} already exist; choose another folder or --force")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for target, content in targets.items():
            target.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"cannot write to {str(folder)!r}: {error}; choose another folder") from error
    return list(targets)
