"""The options that all commands with a recipe share."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raydebm.cli.parameters import Command, option, replace_parameter

if TYPE_CHECKING:
    from raydebm.config import Recipe

ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="Recipe file (`raydebm init` writes one).")]
TaskOption = Annotated[str | None, typer.Option("--task", help="Task name; overrides the recipe's.")]
RunDirOption = Annotated[str | None, typer.Option("--run-dir", help="Run directory; overrides the recipe's.")]
OverridesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Overrides, such as generation.num_samples=4.")
]
RetryOption = Annotated[
    bool, typer.Option("--retry-failed", help="Send requests again that failed in an earlier run of these settings.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done and cost; do nothing.")]


def recipe_command(command: Command) -> Command:
    """A decorator: the command's parameter ``recipe`` becomes --config, --task, --run-dir and dotted overrides."""
    options = [
        option("config", ConfigOption, ...),
        option("task", TaskOption),
        option("run_dir", RunDirOption),
        option("overrides", OverridesArgument),
    ]
    return replace_parameter(command, "recipe", options, _recipe_of)


def _recipe_of(given: Mapping[str, Any]) -> "Recipe":
    return read_recipe(given["config"], given["task"], given["run_dir"], given["overrides"])


def read_recipe(config: Path, task: str | None, run_dir: str | None, overrides: Sequence[str] | None) -> "Recipe":
    """The recipe of a command line: the file, then the flags, then the dotted overrides."""
    from raydebm.config import load_recipe

    settings = list(overrides or [])
    if task is not None:
        settings.insert(0, f"task.name={task}")
    if run_dir is not None:
        settings.append(f"run_dir={run_dir}")
    return load_recipe(config, overrides=settings)
