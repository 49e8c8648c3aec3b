"""Tasks: one plug-in per benchmark, found by name.

``BUILT_IN`` maps names to ``"module:Class"`` strings, so that a task's module is imported on first use. Users' modules
add tasks with ``add_task`` (``raydebm.extensions``). A recipe contains its task file (``task_of``), so that every
process has it.
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
    """Every known task name with its ``"module:Class"``. A built-in task wins over an added one of the same name.

    Raises:
        ConfigError: a user's module cannot be imported.
    """
    load_extensions()
    return {name: f"{make.__module__}:{make.__qualname__}" for name, make in _ADDED.items()} | BUILT_IN


@cache
def get_task(name: str) -> Task:
    """Built-in or added task of a name.

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
    """Task of a name, or of the path of a task file (``.yaml`` or ``.yml``).

    Raises:
        ConfigError: the file is missing or wrong; the message lists every error with its path.
        UnknownNameError: no such task; the message lists the known ones.
    """
    from raydebm.config.task import ENDINGS, read_task_file
    from raydebm.tasks.declared import DeclaredTask, read_definition

    if not name.endswith(ENDINGS):
        return get_task(name)
    return DeclaredTask(read_definition(read_task_file(name), where=f"task file {name!r}"))


def task_of(config: TaskConfig, name: str | None = None) -> Task:
    """Task of a recipe, from its definition or by its name; or, with another ``name``, the built-in or added task of
    that name. With ``data: paper`` TACO has no constraints, as in the paper.

    Raises:
        UnknownNameError: no such task; the message lists the known ones.
        ConfigError: the definition is wrong; the message lists every error with its path.
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
