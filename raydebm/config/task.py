"""A recipe's task and the sources of its problems."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from raydebm.config.section import Section
from raydebm.errors import ConfigError
from raydebm.identity import canonical_json
from raydebm.user_files import text_of, yaml_value


class SplitSource(Section):
    """Source of the problems of one split."""

    split: Literal["train", "test"]
    """Part of the source to read."""
    source: str | None = None
    """A file, a folder, or whatever else the task documents. Default: the task's (a hub data set, or its own puzzle
    generator)."""
    limit: int | None = Field(None, ge=1)
    """Maximum number of problems, after ``id_range``. Default: all."""
    id_range: tuple[float, float] = (0.0, 1.0)
    """Keep problems whose id hashes into [low, high): splits data that has only one part, independently of its
    order."""

    @model_validator(mode="after")
    def _range(self) -> "SplitSource":
        low, high = self.id_range
        if not 0 <= low < high <= 1:
            raise ValueError(f"id_range must satisfy 0 <= low < high <= 1, got {self.id_range}")
        return self


class TaskConfig(Section):
    name: str
    """A built-in or installed task, or the path of a task file (``.yaml``), which is read into ``definition``."""
    definition: dict[str, Any] | None = None
    """Contents of a task file, embedded in the recipe so that every process on every node has it."""
    data: Literal["paper"] | None = None
    """``paper``: exactly the paper's problems of the task (docs/paper.md), and no E_constraint for programs, as in
    the paper; the sources of ``train`` and ``test`` must then be whole copies of the published data, by default the
    hub's. Default: all problems of the sources."""
    train: SplitSource = SplitSource(split="train")
    """Problems for training and validation."""
    test: SplitSource = SplitSource(split="test")
    """Problems for the evaluation; none of them may be a training problem."""

    @model_validator(mode="after")
    def _one_task(self) -> "TaskConfig":
        if self.definition is not None and self.definition.get("name") != self.name:
            raise ValueError(
                f"task.name is {self.name!r}, but task.definition declares {self.definition.get('name')!r}; "
                "leave the definition out, or name its task"
            )
        return self


ENDINGS = (".yaml", ".yml")


def read_task_file(path: str | Path) -> dict[str, Any]:
    """The tree of a task file, with ``folder``, in which its data files are looked up.

    Raises:
        ConfigError: the file is missing, is not YAML, has no name, or contains values that JSON does not have (dates).
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
    """A recipe's tree with a task file's content in place of its path. Paths are relative to the working directory.

    Raises:
        ConfigError: see ``read_task_file``; or the recipe has a definition already.
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
