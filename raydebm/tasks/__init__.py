"""Tasks: one plug-in per benchmark, found by name.

The table below is the only place in the package that names a task. It maps to ``"module:Class"`` strings, so that a
task's module is imported on use. A user's modules add tasks by ``add_task`` (``raydebm.extensions``). A task file is
part of the recipe (``task_of``), and so reaches every process with the recipe.
"""

from collections.abc import Callable
from copy import copy
from functools import cache
from importlib import import_module

from raydebm.config import TaskConfig
from raydebm.errors import UnknownNameError
from raydebm.extensions import load_extensions
from raydebm.tasks.base import Task

BUILT_IN = {
    "gsm8k": "raydebm.tasks.gsm8k:Gsm8k",
    "taco": "raydebm.tasks.taco:Taco",
    "knights_knaves": "raydebm.tasks.knights_knaves:KnightsKnaves",
    "travelplanner": "raydebm.tasks.travelplanner:TravelPlanner",
    "math500": "raydebm.tasks.math500:Math500",
    "musr": "raydebm.tasks.musr:Musr",
    "reasoning_gym": "raydebm.tasks.reasoning_gym:ReasoningGym",
}

_ADDED: dict[str, Callable[[], Task]] = {}


def add_task(name: str, make: Callable[[], Task]) -> None:
    """Register a task: a class, or a function that returns a task (docs/tutorials/a_task.md)."""
    _ADDED[name] = make


def task_table() -> dict[str, str]:
    """Every known task name with its ``"module:Class"``; built-in names win over all others.

    Raises:
        ConfigError: a user's module cannot be imported.
    """
    load_extensions()
    return {name: f"{make.__module__}:{make.__qualname__}" for name, make in _ADDED.items()} | BUILT_IN


@cache
def get_task(name: str) -> Task:
    """The task with this name.

    Raises:
        UnknownNameError: no such task; the message lists the known ones.
    """
    table = task_table()
    if name not in table:
        raise UnknownNameError("task", name, table)
    if name in _ADDED and name not in BUILT_IN:
        return _ADDED[name]()
    module_name, _, class_name = table[name].partition(":")
    task: Task = getattr(import_module(module_name), class_name)()
    return task


def find_task(name: str) -> Task:
    """The task of a name, or of the path of a task file (``.yaml``).

    Raises:
        ConfigError: the file is missing or wrong; every error is listed with its path.
        UnknownNameError: no such task; the message lists the known ones.
    """
    from raydebm.config.task import ENDINGS, read_task_file
    from raydebm.tasks.declared import DeclaredTask, read_definition

    if not name.endswith(ENDINGS):
        return get_task(name)
    return DeclaredTask(read_definition(read_task_file(name), where=f"task file {name!r}"))


def task_of(config: TaskConfig, name: str | None = None) -> Task:
    """The task of a recipe: from its definition, else by its name; the paper's programs have no constraints. With
    another ``name``, the built-in or added task of that name.

    Raises:
        UnknownNameError: no such task; the message lists the known ones.
        ConfigError: the definition is wrong, and every error is listed with its path.
    """
    if name not in (None, config.name):
        return get_task(str(name))
    if config.definition is None:
        task = get_task(config.name)
    else:
        from raydebm.tasks.declared import declared_task

        task = declared_task(config.definition)
    if config.data == "paper" and task.name == "taco":
        task = copy(task)
        vars(task)["constraints"] = ()
    return task
