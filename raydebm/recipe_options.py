"""Options of the commands that work from a recipe, and the recipe that they name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from raydebm.config import Recipe, load_recipe

ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="Recipe file (see configs/).")]
TaskOption = Annotated[str | None, typer.Option("--task", help="Task name; overrides the recipe's.")]
RunDirOption = Annotated[str | None, typer.Option("--run-dir", help="Run directory; overrides the recipe's.")]
RetryOption = Annotated[
    bool, typer.Option("--retry-failed", help="Send requests again that failed in an earlier run of these settings.")
]
SetArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Overrides, such as generation.num_samples=4.")
]


def read_recipe(config: Path, task: str | None, run_dir: str | None, overrides: Sequence[str] | None) -> Recipe:
    """The recipe of a command line: the file, then the flags, then the dotted overrides."""
    settings = list(overrides or [])
    if task is not None:
        settings.insert(0, f"task.name={task}")
    if run_dir is not None:
        settings.append(f"run_dir={run_dir}")
    return load_recipe(config, overrides=settings)
