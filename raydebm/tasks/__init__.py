"""Tasks: one plug-in per benchmark, found by name.

The table below is the only place in the package that names a task. It maps to ``"module:Class"`` strings and not to
classes, because a decorator registers a class only where its module happens to be imported, and every Ray worker is a
new process. Other packages add tasks by the entry-point group ``raydebm.tasks``; a user's task file stands in the
recipe itself (``task_of``), and so reaches every process that the recipe reaches.
"""

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

from raydebm.config import TaskConfig
from raydebm.errors import UnknownNameError
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


def task_table() -> dict[str, str]:
    """Every known task name with its ``"module:Class"``; built-in names win over entry points."""
    plugins = {point.name: point.value for point in entry_points(group="raydebm.tasks")}
    return plugins | BUILT_IN


@cache
def get_task(name: str) -> Task:
    """The task of that name.

    Raises:
        UnknownNameError: no such task; the message lists the known ones.
    """
    table = task_table()
    if name not in table:
        raise UnknownNameError("task", name, table)
    module_name, _, class_name = table[name].partition(":")
    task: Task = getattr(import_module(module_name), class_name)()
    return task


def task_of(config: TaskConfig, name: str | None = None) -> Task:
    """The task of a recipe: the one that its definition declares, else the one of its name.

    Args:
        config: the recipe's section.
        name: another task is wanted; None: the recipe's.

    Raises:
        UnknownNameError: no such task; the message lists the known ones.
        ConfigError: the definition is wrong; every fault is listed with its path.
    """
    if name not in (None, config.name):
        return get_task(str(name))
    if config.definition is None:
        return get_task(config.name)
    from raydebm.tasks.declared import declared_task

    return declared_task(config.definition)
