"""Commands in which several options take the place of one parameter, such as a recipe.

``options_of`` makes the options of the fields of a model, so that no command lists a policy's settings by hand.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer

from raydebm.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

    from raydebm.config import Recipe

Command = Callable[..., None]


def option(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """A parameter that typer turns into an option or argument; ``...`` as default makes it required."""
    default = inspect.Parameter.empty if default is ... else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def replace_parameter(
    command: Command, parameter: str, options: Sequence[inspect.Parameter], value_of: Callable[[Mapping[str, Any]], Any]
) -> Command:
    """The command with these options in place of the parameter, whose value is made of theirs by name."""
    own = inspect.signature(command).parameters.values()
    parameters: list[inspect.Parameter] = []
    for each in own:
        parameters += options if each.name == parameter else [each.replace(kind=inspect.Parameter.KEYWORD_ONLY)]

    @wraps(command)
    def with_options(**arguments: Any) -> None:
        given = {each.name: arguments.pop(each.name) for each in options}
        command(**{parameter: value_of(given)}, **arguments)

    return with_parameters(with_options, parameters)


def with_parameters(command: Command, parameters: Sequence[inspect.Parameter]) -> Command:
    """State the parameters that typer reads."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def options_of(model: type["BaseModel"], parameter: str, suffix: str = "") -> Callable[[Command], Command]:
    """A decorator: ``parameter`` becomes one option per field of the model.

    The command gets a dictionary of the options that were given, by the fields' names in JSON. A list is given as
    ``4,8,16``. Values are checked where they are used.

    Args:
        model: its fields and their docstrings name and describe the options.
        parameter: the command's parameter that takes the dictionary.
        suffix: ends the options' names, such as ``-cost``.
    """
    fields = {f"{name}{suffix}".replace("-", "_"): (name, field) for name, field in model.model_fields.items()}
    options = [option(key, _annotation(field, (field.alias or name) + suffix)) for key, (name, field) in fields.items()]

    def value_of(given: Mapping[str, Any]) -> dict[str, Any]:
        named = {field.alias or name: _value(key, field, given[key]) for key, (name, field) in fields.items()}
        return {name: value for name, value in named.items() if value is not None}

    return lambda command: replace_parameter(command, parameter, options, value_of)


def _annotation(field: "FieldInfo", name: str) -> Any:
    """The type and the option that typer shows for a field."""
    inner = _inner(field.annotation)
    words = [" ".join((field.description or "").split())]
    if get_origin(inner) is Literal:
        words.append(f"One of {', '.join(get_args(inner))}.")
    kind = inner if inner in (int, float) else str
    return Annotated[kind | None, typer.Option(f"--{name.replace('_', '-')}", help=" ".join(filter(None, words)))]


def _inner(annotation: Any) -> Any:
    """The type without None and without pydantic's constraints."""
    if get_origin(annotation) is Annotated:
        return _inner(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        (kind,) = [each for each in get_args(annotation) if each is not type(None)]
        return _inner(kind)
    return annotation


def _value(key: str, field: "FieldInfo", given: Any) -> Any:
    inner = _inner(field.annotation)
    if given is None or get_origin(inner) not in (list, tuple):
        return given
    kind = _inner(get_args(inner)[0])
    try:
        return [kind(part) for part in given.split(",") if part.strip()]
    except ValueError as error:
        name = key.replace("_", "-")
        raise ConfigError(f"--{name} must be a list such as 4,8,16, got {given!r}") from error


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
