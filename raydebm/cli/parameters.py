"""Options shared by several commands: recipes and filters of stored decisions."""

import inspect
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from raydebm.errors import ConfigError

if TYPE_CHECKING:
    from raydebm.config import Recipe
    from raydebm.service.store.reader import Filter

Command = Callable[..., Any]
MAX_PORT = 65_535


def options_from(make: Callable[..., Any], parameter: str) -> Callable[[Command], Command]:
    """Decorator that replaces a command's parameter with the options of ``make``, and passes the result of ``make``.

    ``make`` declares its options as a command does. With several such decorators, the topmost ``make`` is called first.
    """
    options = list(inspect.signature(make).parameters.values())

    def decorate(command: Command) -> Command:
        parameters = [
            other.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for own in inspect.signature(command).parameters.values()
            for other in (options if own.name == parameter else [own])
        ]

        @wraps(command)
        def with_options(**arguments: Any) -> Any:
            given = {each.name: arguments.pop(each.name) for each in options}
            return command(**{parameter: make(**given)}, **arguments)

        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {each.name: each.annotation for each in parameters}
        return with_options

    return decorate


ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="Recipe file (`raydebm init` writes one).")]
TaskOption = Annotated[str | None, typer.Option("--task", help="Task name; overrides the recipe's.")]
RunDirOption = Annotated[str | None, typer.Option("--run-dir", help="Run directory; overrides the recipe's.")]
OverridesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Recipe keys to set, such as task.test.limit=20.")
]
RecordedOption = Annotated[
    str | None,
    typer.Option(
        "--recorded", metavar="POOL", help="File of recorded answers to use instead of models, or a run's candidates."
    ),
]
RetryOption = Annotated[
    bool, typer.Option("--retry-failed", help="Resend requests that failed in an earlier run of this recipe.")
]


def read_recipe(
    config: ConfigOption,
    task: TaskOption = None,
    run_dir: RunDirOption = None,
    overrides: OverridesArgument = None,
    recorded: RecordedOption = None,
) -> "Recipe":
    """The recipe of a command line: its file, with ``--task``, overrides, ``--run-dir`` and ``--recorded`` applied."""
    from raydebm.config import load_recipe, with_recorded_answers
    from raydebm.tasks import task_table

    settings = list(overrides or [])
    if task is not None:
        settings.insert(0, f"task.name={task}")
    if run_dir is not None:
        settings.append(f"run_dir={run_dir}")
    recipe = load_recipe(config, overrides=settings, known_tasks=task_table)
    return recipe if recorded is None else with_recorded_answers(recipe, recorded)


recipe_command = options_from(read_recipe, "recipe")
"""Decorator that replaces the parameter ``recipe`` with the options of ``read_recipe``."""


ReporterOption = Annotated[list[str] | None, typer.Option("--by", help="Only outcomes by this reporter; repeatable.")]
SinceOption = Annotated[str | None, typer.Option(help="Only decisions from this time on, such as 2026-01-31T00:00Z.")]
UntilOption = Annotated[str | None, typer.Option(help="Only decisions before this time.")]


def decision_filter(
    task: Annotated[str | None, typer.Option(help="Only decisions of this task.")] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    outcome: Annotated[
        str | None,
        typer.Option(help="Only decisions with this reported outcome: right, wrong, or none (not reported)."),
    ] = None,
) -> "Filter":
    """Filter of stored decisions from a command's options. Raises ConfigError for a malformed option."""
    from raydebm.service.store.reader import Filter

    try:
        return Filter.model_validate(
            {"task": task, "since": _time(since, "--since"), "until": _time(until, "--until"), "outcome": outcome}
        )
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise ConfigError(f"--{fault['loc'][0]}: {fault['msg']}, got {fault['input']!r}") from error


def decision_period(since: SinceOption = None, until: UntilOption = None) -> "Filter":
    """Filter of stored decisions by time only."""
    return decision_filter(since=since, until=until)


def _time(text: str | None, option_name: str) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{option_name} must be a time such as 2026-01-31T12:00Z, got {text!r}") from error
    if time.tzinfo is None:
        example = time.isoformat(timespec="auto" if time.second or time.microsecond else "minutes")
        raise ConfigError(f"{option_name} needs a time zone, such as {example}Z")
    return time
