"""The verbs of ``raydebm`` and their functions. Help lists them without importing any."""

import importlib
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from raydebm import __version__

VERBS = {
    "init": ("runs:init", "Write a recipe, serve_config.yaml and cluster.yaml."),
    "demo": ("demo:demo", "Train, evaluate, serve and ask, offline on small models."),
    "run": ("runs:run", "Run all stages of a recipe, from problems to the report."),
    "calibrate": ("calibrate:calibrate", "Choose profile and thresholds, and certify a promise."),
    "seeds": ("studies:seeds", "Train with several seeds, or on all folds but one."),
    "reproduce": ("studies:reproduce", "Write every table and figure of the paper."),
    "confounding": ("studies:confounding", "Test whether the scorer recognises who wrote an answer."),
    "serve": ("serve:serve", "Serve finished runs until Ctrl-C or SIGTERM."),
    "replay": ("replay:replay", "Decide stored traffic again under another policy."),
    "import-decisions": ("imports:import_decisions", "Turn decisions with outcomes into a run for training."),
    "export": ("export:export", "Write a scorer and its model card for the Hugging Face hub."),
    "task": ("task:app", "Write and check tasks of your own."),
    "validate": ("runs:validate", "Check a recipe and print it with its defaults."),
    "reference": ("runs:reference", "Print every key of a recipe, with its meaning."),
}
"""Verbs in the order of a user's work.

Each with its target, a module of this package and a name in it (a function, or a ``typer.Typer`` for a group), and its
line of ``raydebm --help``, the first line of the function's docstring."""


class VerbGroup(TyperGroup):
    """Group of commands that are imported when called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The verbs in help order, without importing them."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import the command of a verb."""
        return command_of(cmd_name) if cmd_name in VERBS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one line per verb."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in VERBS.items()])


def command_of(name: str) -> Any:
    """Parser of a verb, whose module is imported."""
    module, function = VERBS[name][0].split(":")
    target = getattr(importlib.import_module(f"raydebm.cli.{module}"), function)
    if isinstance(target, typer.Typer):
        return get_command(target)
    alone = _typer()
    alone.command(name)(target)
    return get_command(alone)


def _typer(**settings: Any) -> typer.Typer:
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **settings)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"raydebm {__version__}")
        raise typer.Exit


app = _typer(
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
    """Make ``app`` a group although none of its commands is registered with it."""
