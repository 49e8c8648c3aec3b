"""A user's task file on its way into a recipe.

In:   a recipe's tree whose ``task.name`` is a path such as ``support_reply/task.yaml``.
Out:  the tree with the file's content as ``task.definition``, so that it reaches every process that the recipe reaches:
      workers on other nodes, checker processes, the service's replicas, submitted jobs.
Does not know: the keys of a task (``raydebm.tasks.declared`` does).
"""

from pathlib import Path
from typing import Any

from raydebm.errors import ConfigError
from raydebm.identity import canonical_json
from raydebm.user_files import text_of, yaml_value

ENDINGS = (".yaml", ".yml")


def read_task_file(path: str | Path) -> dict[str, Any]:
    """The tree of a task file, with ``folder``, in which its data files are looked up.

    Raises:
        ConfigError: the file is missing, is not YAML, has no name, or holds what JSON does not have (dates).
    """
    missing = f" (looked up from {str(Path.cwd())!r}); `raydebm task new NAME` writes one"
    tree = yaml_value(text_of(path, what="task file", missing=missing), where=f"task file {str(path)!r}")
    if not isinstance(tree, dict) or not isinstance(tree.get("name"), str):
        raise ConfigError(f"task file {str(path)!r} must be a mapping with a name, got {tree!r:.80}")
    try:
        canonical_json(tree)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"task file {str(path)!r}: {error}; put dates and the like in quotes") from error
    return {"folder": str(Path(path).parent), **tree}


def with_definition(tree: dict[str, Any]) -> dict[str, Any]:
    """A recipe's tree with a task file's content in place of its path. Paths count from the working directory.

    Raises:
        ConfigError: see ``read_task_file``; also when there is a definition already.
    """
    task = tree.get("task")
    if not isinstance(task, dict) or not str(task.get("name")).endswith(ENDINGS):
        return tree
    if task.get("definition") is not None:
        raise ConfigError(
            f"task.name is the file {task['name']!r} and there is a task.definition too; leave one of them out"
        )
    definition = read_task_file(str(task["name"]))
    return {**tree, "task": {**task, "name": definition["name"], "definition": definition}}
