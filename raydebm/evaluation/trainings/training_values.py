"""What trainings say about each problem: every selector's value, and every signal of certainty.

In:   each training's entries and certainty, in the order of its problems.
Out:  tables by training and problem.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raydebm.evaluation.certainty.trust import Certainty
from raydebm.evaluation.results.entries import SelectorEntry
from raydebm.evaluation.results.texts_read import TextsRead
from raydebm.evaluation.stats.intervals import Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Training:
    """One training's evaluation: the entries' values stand in the order of ``problem_ids``."""

    seed: int
    problem_ids: tuple[str, ...]
    entries: Sequence[SelectorEntry]
    certainty: Certainty | None = None
    """About the selections by energy, in the same order."""
    decision: Certainty | None = None
    """The posterior's confidence in the chosen profile's selections; None without a posterior."""
    facts: "TrainingFacts | None" = None
    texts_read: tuple[TextsRead, ...] = ()
    """What the scorer read of its texts, by split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFacts:
    """Figures of one training that are shown one by one, without an interval over trainings."""

    sigma_auroc: float | None
    within_generator: float | None
    """Mean over generators of the AUROC of -mu for correct among one generator's answers."""
    screen: str
    """What the confounding screen says."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SelectorValues:
    """The value of every selector that all trainings have, by training and problem: shape (S, P) each, NaN where a
    training does not have the problem or its value."""

    problem_ids: tuple[str, ...]
    groups: Mapping[str, str]
    """Values of each selector, in the order of the report."""
    correct: Mapping[str, Floats]
    violation: Mapping[str, Floats]

    @classmethod
    def of(cls, trainings: Sequence[Training]) -> "SelectorValues":
        """Join trainings by problem and selector; NaN where a training lacks one."""
        problem_ids = sorted({problem_id for training in trainings for problem_id in training.problem_ids})
        by_name = [{entry.name: entry for entry in training.entries} for training in trainings]
        names = [name for name in by_name[0] if all(name in entries for entries in by_name)]
        places = {problem_id: index for index, problem_id in enumerate(problem_ids)}

        def stacked(name: str, field: str) -> Floats:
            table = np.full((len(trainings), len(places)), math.nan)
            for row, (training, entries) in enumerate(zip(trainings, by_name, strict=True)):
                columns = [places[problem_id] for problem_id in training.problem_ids]
                table[row, columns] = getattr(entries[name], field)
            return table

        return cls(
            problem_ids=tuple(problem_ids),
            groups={name: by_name[0][name].group for name in names},
            correct={name: stacked(name, "correct") for name in names},
            violation={name: stacked(name, "violation") for name in names},
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(trainings, problems)."""
        return next(iter(self.correct.values())).shape[0] if self.correct else 0, len(self.problem_ids)

    @property
    def continuous(self) -> bool:
        """Some selector has a violation score; selectors are then compared by it."""
        return any(not np.isnan(values).all() for values in self.violation.values())

    @property
    def judged(self) -> Mapping[str, Floats]:
        """What selectors are compared by, higher is better: 1 - violation, or correct."""
        return {name: 1 - values for name, values in self.violation.items()} if self.continuous else self.correct
