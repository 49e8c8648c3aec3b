"""A recipe's task and the sources of its problems."""

from typing import Any, Literal

from pydantic import Field, model_validator

from raydebm.config.section import Section


class SplitSource(Section):
    """Source of the problems of one split."""

    split: Literal["train", "test"]
    """Part of the source, by the task's own name."""
    source: str | None = None
    """A file, a folder, or a form that the task documents. Default: the task's (a hub data set, or its own puzzle
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
    """``paper``: exactly the paper's problems of the task (docs/paper.md); the sources of ``train`` and ``test`` must
    then be whole copies of the published data, by default the hub's. Default: all problems of the sources."""
    constraints: Literal["none"] | None = None
    """``none``: no E_constraint, as in the paper for programs; broken constraints then cause no regeneration. Refused
    for a task whose labels are its constraints. Default: the task's own."""
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
