"""The paper's problems under one name (``task.data: paper`` in a recipe).

If the problems are determined by published data alone, their ids are shipped (``paper_ids/``: content ids of this
package, so no text), and a source that lacks one of them is refused. Otherwise, because the paper does not name ids, a
rule chooses the problems when the data is loaded. docs/paper.md has a row for each.
"""

import gzip
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources

from raydebm.errors import TaskDataError
from raydebm.records import Gold, Problem
from raydebm.tasks.base import Task
from raydebm.tasks.taco.sources import paper_problems as taco_problems

logger = logging.getLogger(__name__)

Pair = tuple[Problem, Gold]


def _all(pairs: Iterable[Pair], split: str) -> list[Pair]:
    return list(pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperData:
    """The paper's problems of one task."""

    counts: dict[str, int]
    """Number of problems by split."""
    source: str | None = None
    """Source for ``Task.load``. Default: the task's own."""
    whole: str | None = None
    """Source split that both are chosen from. Default: the split of the same name."""
    choose: Callable[[Iterable[Pair], str], Sequence[Pair]] = _all
    """Function that chooses a split's problems from those of the source. Not used for splits with shipped ids."""
    shipped: tuple[str, ...] = ()
    """Splits whose ids are shipped."""


PAPER: dict[str, PaperData] = {
    "gsm8k": PaperData(counts={"train": 7473, "test": 1319}, shipped=("train", "test")),
    "musr": PaperData(counts={"train": 605, "test": 151}),
    "travelplanner": PaperData(counts={"train": 175, "test": 50}, shipped=("train", "test")),
    "taco": PaperData(
        counts={"train": 601, "test": 94}, source="hub:likaixin/TACO-verified", whole="train", choose=taco_problems
    ),
    "knights_knaves": PaperData(counts={"train": 6200, "test": 700}, source="hub:K-and-K/knights-and-knaves"),
    "math500": PaperData(counts={"test": 500}, shipped=("test",)),
}
"""By task. MATH-500 is a target of transfer only: its training problems are not the paper's, but those of MATH."""


def load_paper_problems(task: Task, split: str, *, source: str | None = None, seed: int = 0) -> list[Pair]:
    """The paper's problems of a split, in the order of their source; with shipped ids, exactly these. A split that the
    paper does not use is loaded by the task.

    Args:
        task: one of the paper's benchmarks.
        split: ``"train"`` or ``"test"``.
        source: a copy of the data, as in ``Task.load``. Default: the published data set.
        seed: as in ``Task.load``.

    Raises:
        TaskDataError: the task is not in the paper, or the source lacks one of its problems.
    """
    data = PAPER.get(task.name)
    if data is None:
        raise TaskDataError(
            f"the paper has no problems of task {task.name!r}; leave out `task.data`, or use one of {', '.join(PAPER)}"
        )
    if split not in data.counts:
        return list(task.load(split, source=source, seed=seed))
    pairs = task.load(data.whole or split, source=source or data.source, seed=seed)
    if split in data.shipped:
        return _with_ids(pairs, shipped_ids(task.name, split), where=f"{task.name} {split}")
    chosen = list(data.choose(pairs, split))
    if len(chosen) != data.counts[split]:
        logger.warning(
            "%s %s: %d problems were found, and the paper has %d; the published data may have changed",
            task.name, split, len(chosen), data.counts[split],
        )  # fmt: skip
    return chosen


def shipped_ids(task: str, split: str) -> tuple[str, ...]:
    """Ids of the paper's problems of a split, from ``paper_ids/``."""
    file = resources.files("raydebm.tasks").joinpath("paper_ids", f"{task}_{split}.txt.gz")
    return tuple(gzip.decompress(file.read_bytes()).decode("ascii").split())


def _with_ids(pairs: Iterable[Pair], ids: Sequence[str], *, where: str) -> list[Pair]:
    wanted = set(ids)
    chosen = [pair for pair in pairs if pair[0].problem_id in wanted]
    if len(chosen) < len(wanted):
        raise TaskDataError(
            f"{where}: the source lacks {len(wanted) - len(chosen)} of the paper's {len(wanted)} problems; its texts "
            "differ, or it is incomplete: give a whole copy of the published data, or leave out `task.data`"
        )
    return chosen
