"""Every key of a task file with its type, default and meaning, as Markdown (``raydebm reference --task-file``).

``docs/task_file.md`` is this module's output; a test compares them.
"""

from typing import Any

from raydebm.config.recipe_reference import page
from raydebm.tasks.declared.definition import TaskDefinition

_HEAD = """# Task files

A task file is a YAML file that says what is asked, how an answer looks, which rules it must keep and which answers are
right. [A tutorial](tutorials/a_task.md) builds one by hand, [constraints.md](constraints.md) has the rules. Unknown
keys are refused, and no value is converted: `"1"` is no number.

This page is the output of `raydebm reference --task-file`.
"""


def render() -> str:
    """The page of task files."""
    schema: dict[str, Any] = TaskDefinition.model_json_schema(by_alias=True)
    rules = schema["properties"]["constraints"]
    # The rules have a page of their own.
    keys = schema["properties"] | {"constraints": rules | {"items": {"type": "object"}, "default": []}}
    return page(schema | {"properties": keys}, head=_HEAD, title="The task")
