"""Reading of recipes: a YAML file, overrides and the environment become a checked recipe."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from raydebm.config.recipe import Recipe
from raydebm.config.section import Section, faults_in
from raydebm.config.studies import merged
from raydebm.config.task import ENDINGS, with_definition
from raydebm.errors import ConfigError, UnknownNameError
from raydebm.user_files import text_of, yaml_value

BY_TASK = "by_task"
"""Key of the settings that differ between tasks, in a recipe for several tasks."""
KnownTasks = Callable[[], Iterable[str]]
"""Function that returns the names of all tasks, including the user's. This module does not import the tasks."""
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def _expand(value: Any, where: str) -> Any:
    """Replace ``${VAR}`` and ``${VAR:-default}`` in every string below ``value``.

    A task's definition is left alone: in its messages ``${value}`` is a dollar sign and a placeholder."""
    if where == "task.definition":
        return value
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _lookup(match, where), value)
    if isinstance(value, Mapping):
        return {key: _expand(child, f"{where}.{key}" if where else str(key)) for key, child in value.items()}
    if isinstance(value, list):
        return [_expand(child, f"{where}[{index}]") for index, child in enumerate(value)]
    return value


def _lookup(match: re.Match[str], where: str) -> str:
    name, default = match.group(1), match.group(2)
    value = os.environ.get(name, default)
    if value is None:
        raise ConfigError(f"{where}: environment variable {name} is not set; export it or write ${{{name}:-default}}")
    return value


def apply_overrides(tree: dict[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Set dotted keys (``decision.theta_sigma=0.5``, ``generators.0.model=x``) in a copy of the tree; values are YAML.

    An override below a section or list that the tree omits (``scorer.adapters.0.rank=4``) changes part of its default.

    Raises:
        ConfigError: an override is not ``key=value``, its value is not YAML, or its path leads through a plain value or
            to a position that a list does not have.
    """
    result: dict[str, Any] = deepcopy(tree)
    for override in overrides:
        path, separator, text = override.partition("=")
        if not separator or not path:
            raise ConfigError(f"override {override!r} is not of the form key.path=value")
        node: Any = result
        default: Any = _defaults(Recipe)
        *parents, last = path.split(".")
        for parent in parents:
            if isinstance(node, list):
                index = _index(node, parent, override)
                node, default = node[index], dict(enumerate(default or ())).get(index)
            elif isinstance(node, dict):
                default = default.get(parent) if isinstance(default, dict) else None
                if node.get(parent) is None:
                    node[parent] = {} if default is None else deepcopy(default)
                node = node[parent]
        value = yaml_value(text, where=f"override {override!r}: the value", hint="; put it in quotes")
        if isinstance(node, list):
            node[_index(node, last, override)] = value
        elif isinstance(node, dict):
            node[last] = value
        else:
            raise ConfigError(f"override {override!r}: {'.'.join(parents)} is a plain value and has nothing below it")
    return result


@cache
def _defaults(model: type[BaseModel]) -> dict[str, Any]:
    """Default of every section, list and plain value that has one, as YAML values."""
    defaults = {}
    for name, field in model.model_fields.items():
        if not field.is_required():
            default = field.get_default(call_default_factory=True)
            defaults[field.alias or name] = to_jsonable_python(default, by_alias=True)
        elif isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            defaults[field.alias or name] = _defaults(field.annotation)
    return defaults


def _index(node: list[Any], key: str, override: str) -> int:
    positions = [str(position) for position in range(len(node))]
    if key not in positions:
        raise ConfigError(f"override {override!r}: {key!r} is not a position in a list of {len(node)}")
    return positions.index(key)


def _settled(tree: Mapping[str, Any], overrides: Sequence[str], known: KnownTasks | None) -> dict[str, Any]:
    """Apply ``by_task`` for the tree's task, then the overrides, and remove ``by_task``.

    Raises:
        ConfigError: a wrong override; ``by_task`` does not map tasks to sections, names an unknown task, or changes
            the task's name.
    """
    overridden = apply_overrides(dict(tree), overrides)
    sections, task = overridden.get(BY_TASK, {}), overridden.get("task")
    if not isinstance(sections, dict) or not all(isinstance(section, dict) for section in sections.values()):
        raise ConfigError(
            f"{BY_TASK} must map names of tasks to sections, such as {{<task>: {{decision: {{theta_sigma: 0.5}}}}}}, "
            f"got {sections!r}"
        )
    name = str(task.get("name")) if isinstance(task, dict) else ""
    _check_tasks([str(key) for key in sections if str(key) != name], known)
    changes = sections.get(name, {})
    if isinstance(changes.get("task"), dict) and "name" in changes["task"]:
        raise ConfigError(f"{BY_TASK}.{name}.task.name: the name chooses these settings and cannot be one of them")
    settled = apply_overrides(merged(overridden, changes), overrides)
    settled.pop(BY_TASK, None)
    return settled


def _check_tasks(names: Iterable[str], known: KnownTasks | None) -> None:
    """Raises UnknownNameError for a name that is neither a known task nor a task file."""
    others = [name for name in names if not (name.endswith(ENDINGS) and Path(name).is_file())]
    if known is None or not others:
        return
    tasks = tuple(known())
    for name in others:
        if name not in tasks:
            raise UnknownNameError(f"task in {BY_TASK}", name, tasks)


def _explain(error: ValidationError, where: str) -> str:
    lines = [f"  {line}" for line in faults_in(error, root="recipe")]
    if any(fault["type"] == "extra_forbidden" for fault in error.errors()):
        lines.append("  `raydebm reference` lists the known keys")
    return f"{where} is not a valid recipe:\n" + "\n".join(lines)


def parse_recipe(
    tree: Mapping[str, Any],
    *,
    overrides: Iterable[str] = (),
    where: str = "recipe",
    known_tasks: KnownTasks | None = None,
) -> Recipe:
    """Check a recipe given as a tree of YAML values.

    ``by_task`` overrides the sections for the recipe's task, and ``overrides`` override both.

    Args:
        tree: sections by name.
        overrides: see ``apply_overrides``.
        where: name of the recipe in messages.
        known_tasks: function that returns the names that ``by_task`` may use. Default: any name.

    Raises:
        ConfigError: a wrong override, a missing environment variable, or an unreadable task file; or unknown keys and
            wrong values, each listed with its path.
    """
    try:
        return Recipe.model_validate(with_definition(_expand(_settled(tree, [*overrides], known_tasks), "")))
    except ValidationError as error:
        raise ConfigError(_explain(error, where)) from error


def load_recipe(path: str | Path, *, overrides: Iterable[str] = (), known_tasks: KnownTasks | None = None) -> Recipe:
    """Read and check a recipe file. The arguments are those of ``parse_recipe``.

    Raises:
        ConfigError: the file is missing, is not YAML, or is not a valid recipe.
    """
    where = f"recipe {str(path)!r}"
    tree = yaml_value(text_of(path, what="recipe", missing="; shipped recipes are in configs/"), where=where)
    if not isinstance(tree, dict):
        raise ConfigError(f"{where} must be a mapping of sections, got {type(tree).__name__}")
    return parse_recipe(tree, overrides=overrides, where=where, known_tasks=known_tasks)


def with_recorded_answers(recipe: Recipe, pool: str) -> Recipe:
    """The same recipe without its models: each generator replays the model of its name in a recorded pool.

    Args:
        recipe: recipe with the generators' names and numbers of samples.
        pool: value for ``generators[].pool`` (docs/recorded_pools.md).

    Raises:
        ConfigError: a part of the recipe needs generators that can sample, such as ``confounding.swap``.
    """
    recorded = [
        {"kind": "recorded", "model": generator.name, "pool": pool}
        | generator.model_dump(include={"name", "num_samples"})
        for generator in recipe.generators
    ]
    return changed_recipe(recipe, {"generators": recorded}, where=f"recipe {recipe.name!r} with answers of {pool!r}")


def changed_recipe(recipe: Recipe, sections: Mapping[str, Any], *, where: str = "recipe") -> Recipe:
    """A recipe with whole sections replaced, checked again.

    Raises:
        ConfigError: the recipe is not valid; every problem is listed with its path.
    """
    try:
        return Recipe.model_validate(recipe.model_dump(mode="json", by_alias=True) | dict(sections))
    except ValidationError as error:
        raise ConfigError(_explain(error, where)) from error
