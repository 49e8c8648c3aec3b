"""The paper's problems under one name (``task.data: paper`` in a recipe).

Some tasks have a digest of the ids of these problems, and a source with other problems is refused. The problems of the
others are chosen by a rule when the data is loaded, because the paper does not publish ids; a different number of them
is only logged. docs/paper.md has a row for each task.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from raydebm.errors import TaskDataError
from raydebm.identity import content_id
from raydebm.records import Gold, Problem
from raydebm.tasks.base import Task
from raydebm.tasks.taco.sources import paper_problems as taco_problems

logger = logging.getLogger(__name__)

Pair = tuple[Problem, Gold]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperData:
    """The paper's problems of one task."""

    counts: dict[str, int]
    """Number of problems by split."""
    source: str | None = None
    """Source for ``Task.load``. Default: the task's own."""
    whole: str | None = None
    """Split of the source that contains the training and the test problems. Default: the source has both splits."""
    choose: Callable[[Iterable[Pair], str], list[Pair]] = lambda pairs, split: list(pairs)
    """Function that chooses a split's problems from those of the source. Default: all of them."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Content id of the sorted problem ids, by split. Default: any problems are accepted."""


PAPER: dict[str, PaperData] = {
    "gsm8k": PaperData(
        counts={"train": 7473, "test": 1319},
        digests={"train": "b3cd598298518fdb8e7b", "test": "4ba5772df2868e005984"},
    ),
    "musr": PaperData(counts={"train": 605, "test": 151}),
    "travelplanner": PaperData(
        counts={"train": 175, "test": 50}, digests={"train": "5f512c6bfe3401e83a4e", "test": "b22a71686f1d8aed50d9"}
    ),
    "taco": PaperData(
        counts={"train": 601, "test": 94}, source="hub:likaixin/TACO-verified", whole="train", choose=taco_problems
    ),
    "knights_knaves": PaperData(counts={"train": 6200, "test": 700}, source="hub:K-and-K/knights-and-knaves"),
    "math500": PaperData(counts={"test": 500}, digests={"test": "153a46f5ef8c1b46e9b8"}),
}
"""Problems by task. MATH-500 is only a target of transfer, so the paper has no training problems of it."""


def load_paper_problems(task: Task, split: str, *, source: str | None = None, seed: int = 0) -> list[Pair]:
    """The paper's problems of a split. They are in the order of the source, by default the published data set, unless
    a rule chooses them. A split that the paper does not use is loaded as by ``Task.load``.

    Raises:
        TaskDataError: the task is not in the paper, or the problems of the source do not have the known digest.
    """
    data = PAPER.get(task.name)
    if data is None:
        raise TaskDataError(
            f"the paper has no problems of task {task.name!r}; leave out `task.data`, or use one of {', '.join(PAPER)}"
        )
    if split not in data.counts:
        return list(task.load(split, source=source, seed=seed))
    pairs = task.load(data.whole or split, source=source or data.source, seed=seed)
    chosen = data.choose(pairs, split)
    if split in data.digests:
        if content_id(sorted(problem.problem_id for problem, _ in chosen)) != data.digests[split]:
            raise TaskDataError(
                f"{task.name} {split}: the source's {len(chosen)} problems are not the paper's {data.counts[split]}; "
                "use a complete and unchanged copy of the published data, or leave out `task.data`"
            )
    elif len(chosen) != data.counts[split]:
        logger.warning(
            "%s %s: found %d problems, but the paper has %d; the published data may have changed",
            task.name, split, len(chosen), data.counts[split],
        )  # fmt: skip
    return chosen
