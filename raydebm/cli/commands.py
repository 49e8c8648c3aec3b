"""The commands of ``raydebm`` and their functions. The help lists them without importing any."""

import importlib
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from raydebm import __version__

GROUPS = {
    "Begin": {
        "demo": ("demo:demo", "Train, evaluate, serve and ask, offline on small models."),
        "init": ("runs:init", "Write a recipe, serve_config.yaml and cluster.yaml."),
        "task": ("task:app", "Write and check tasks of your own."),
        "validate": ("runs:validate", "Check a recipe and print it with its defaults."),
        "reference": ("runs:reference", "Print every key of a recipe, with its meaning."),
    },
    "Train and measure": {
        "run": ("runs:run", "Run all stages of a recipe, from problems to the report."),
        "calibrate": ("calibrate:calibrate", "Choose profile and thresholds, and certify a guarantee."),
        "seeds": ("studies:seeds", "Train with several seeds, or in cross-validation."),
        "confounding": ("studies:confounding", "Test whether the scorer recognises who wrote an answer."),
        "reproduce": ("studies:reproduce", "Write every table and figure of the paper."),
        "export": ("serve:export", "Write a scorer and its model card for the Hugging Face hub."),
    },
    "Serve": {
        "serve": ("serve:serve", "Serve finished runs until Ctrl-C or SIGTERM."),
        "replay": ("replay:replay", "Decide stored requests again under another policy."),
        "import-decisions": ("imports:import_decisions", "Turn decisions with reported outcomes into training data."),
    },
}
"""Commands by section of the help: target ``module:name`` in this package, and the first line of its help."""
VERBS = {name: verb for group in GROUPS.values() for name, verb in group.items()}


class VerbGroup(TyperGroup):
    """Commands that are imported when called, listed in sections."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return command_of(cmd_name) if cmd_name in VERBS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, VERBS))  # the same in every section
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), words) for name, (_, words) in verbs.items()])


def command_of(name: str) -> Any:
    """Import the module of a command, and return its parser."""
    module, function = VERBS[name][0].split(":")
    target = getattr(importlib.import_module(f"raydebm.cli.{module}"), function)
    group = target if isinstance(target, typer.Typer) else new_typer()
    if group is not target:
        group.command(name)(target)
    return get_command(group)


def new_typer(**settings: Any) -> typer.Typer:
    """A group of commands with plain help and tracebacks."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **settings)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"raydebm {__version__}")
        raise typer.Exit


app = new_typer(
    cls=VerbGroup,
    name="raydebm",
    help="Choose among LLM answers, and know when none can be trusted.",
    no_args_is_help=True,
)


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Make ``app`` a group, although its commands are not registered with it."""
