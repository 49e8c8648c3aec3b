"""The verbs of ``raydebm`` and their functions. Help lists them without importing any."""

import importlib
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command


@dataclass(frozen=True, slots=True)
class Verb:
    """A command or group of commands, imported on use."""

    target: str
    """Module of this package and name in it: a function, or a ``typer.Typer`` for a group."""
    help: str
    """One line of ``raydebm --help``: the first line of the function's docstring."""

    def load(self) -> Any:
        """Import ``target``."""
        module, name = self.target.split(":")
        return getattr(importlib.import_module(f"raydebm.cli.{module}"), name)


VERBS = {
    "init": Verb("runs:init", "Write a recipe, serve_config.yaml and cluster.yaml."),
    "demo": Verb("demo:demo", "Train, evaluate, serve and ask, offline on small models."),
    "run": Verb("runs:run", "Run all stages of a recipe, from problems to the report."),
    "calibrate": Verb("calibrate:calibrate", "Choose profile and thresholds, and certify a promise."),
    "seeds": Verb("studies:seeds", "Train with several seeds, or on all folds but one."),
    "reproduce": Verb("studies:reproduce", "Write every table and figure of the paper."),
    "confounding": Verb("studies:confounding", "Test whether the scorer recognises who wrote an answer."),
    "serve": Verb("serve:serve", "Serve finished runs until Ctrl-C or SIGTERM."),
    "replay": Verb("replay:replay", "Decide stored traffic again under another policy."),
    "import-decisions": Verb("imports:import_decisions", "Turn decisions with outcomes into a run for training."),
    "export": Verb("export:export", "Write a scorer and its model card for the Hugging Face hub."),
    "task": Verb("task:app", "Write and check tasks of your own."),
    "validate": Verb("runs:validate", "Check a recipe and print it with its defaults."),
    "reference": Verb("runs:reference", "Print every key of a recipe, with its meaning."),
}
"""Verbs in the order of a user's work."""


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
            formatter.write_dl([(name, verb.help) for name, verb in VERBS.items()])


def command_of(name: str) -> Any:
    """Parser of a verb."""
    target = VERBS[name].load()
    if isinstance(target, typer.Typer):
        return get_command(target)
    alone = _typer()
    alone.command(name)(target)
    return get_command(alone)


def _typer(**settings: Any) -> typer.Typer:
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **settings)


app = _typer(
    cls=VerbGroup,
    name="raydebm",
    help="Choose among LLM answers, and know when none can be trusted.",
    no_args_is_help=True,
)


@app.callback()
def root() -> None:
    """Make ``app`` a group although none of its commands is registered with it."""
