"""Command-line options made of the fields of a model, so that no command lists a policy's settings by hand."""

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from raydebm.errors import ConfigError


def options_of(model: type[BaseModel], parameter: str, suffix: str = "") -> Callable[[Callable[..., None]], Any]:
    """A decorator for typer commands: ``parameter`` becomes one option per field of the model.

    The command gets a dictionary of the options that were given, by the fields' names in JSON. A list is given as
    ``4,8,16``. Values are checked where they are used.

    Args:
        model: its fields and their docstrings name and describe the options.
        parameter: of the command; takes the dictionary.
        suffix: of the options' names, such as ``-cost``.
    """

    def decorate(command: Callable[..., None]) -> Any:
        signature = inspect.signature(command, eval_str=True)
        options = dict(_options(model, suffix))
        names = {option: field.alias or name for option, (name, field, _) in options.items()}
        parameters: list[inspect.Parameter] = []
        for own in signature.parameters.values():
            parameters += [made for _, _, made in options.values()] if own.name == parameter else [own]

        @wraps(command)
        def with_options(**arguments: Any) -> None:
            given = {name: _value(option, options[option][1], arguments.pop(option)) for option, name in names.items()}
            command(**arguments, **{parameter: {name: value for name, value in given.items() if value is not None}})

        with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {each.name: each.annotation for each in parameters}
        return with_options

    return decorate


def _options(model: type[BaseModel], suffix: str) -> Iterator[tuple[str, tuple[str, FieldInfo, inspect.Parameter]]]:
    """(parameter name, (field name, field, parameter of the command))."""
    for name, field in model.model_fields.items():
        written = (field.alias or name).replace("_", "-") + suffix
        inner = _inner(field.annotation)
        words = [" ".join((field.description or "").split())]
        if get_origin(inner) is Literal:
            words.append(f"One of {', '.join(get_args(inner))}.")
        kind = inner if inner in (int, float) else str
        option = typer.Option(f"--{written}", help=" ".join(filter(None, words)))
        key = f"{name}{suffix}".replace("-", "_")
        yield (
            key,
            (
                name,
                field,
                inspect.Parameter(
                    key,
                    inspect.Parameter.POSITIONAL_OR_KEYWORD,
                    default=None,
                    annotation=Annotated[kind | None, option],
                ),
            ),
        )


def _inner(annotation: Any) -> Any:
    """The type without None and without pydantic's constraints."""
    if get_origin(annotation) is Annotated:
        return _inner(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        (kind,) = [each for each in get_args(annotation) if each is not type(None)]
        return _inner(kind)
    return annotation


def _value(option: str, field: FieldInfo, given: Any) -> Any:
    inner = _inner(field.annotation)
    if given is None or get_origin(inner) not in (list, tuple):
        return given
    kind = _inner(get_args(inner)[0])
    try:
        return [kind(part) for part in given.split(",") if part.strip()]
    except ValueError as error:
        name = option.replace("_", "-")
        raise ConfigError(f"--{name} must be a list such as 4,8,16, got {given!r}") from error
