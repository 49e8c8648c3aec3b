"""An adapter's training data and plan: pairs and learning rate of each step. Does not need torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from raydebm.identity import content_id
from raydebm.scorer.pairs import TrainingGroup


@dataclass(frozen=True, slots=True)
class Portion:
    """Pairs of one problem in one step: all, or a part if they exceed a batch."""

    group: TrainingGroup
    share: float = 1.0
    """Fraction of the problem's pairs, in (0, 1]."""


@dataclass(frozen=True, slots=True)
class Step:
    """One optimiser step: whole problems, or a part of one problem."""

    portions: tuple[Portion, ...]

    @property
    def groups(self) -> tuple[TrainingGroup, ...]:
        """The problems, or parts of problems, of the step."""
        return tuple(portion.group for portion in self.portions)

    @property
    def num_pairs(self) -> int:
        """Number of pairs of the step."""
        return sum(len(portion.group.pairs) for portion in self.portions)

    @property
    def num_problems(self) -> float:
        """Number of problems; a part counts by its fraction of the problem's pairs."""
        return math.fsum(portion.share for portion in self.portions)


def portions_of(group: TrainingGroup, *, batch_size: int) -> list[Portion]:
    """The whole problem, or the fewest parts of nearly equal size if it has more than ``batch_size`` pairs.

    A part has only the texts of its own pairs.
    """
    total = len(group.pairs)
    num_parts = math.ceil(total / batch_size)
    if num_parts <= 1:
        return [Portion(group)]
    limits = [round(index * total / num_parts) for index in range(num_parts + 1)]
    return [
        Portion(_part(group, group.pairs[start:end]), share=(end - start) / total) for start, end in pairwise(limits)
    ]


def _part(group: TrainingGroup, pairs: Sequence[tuple[int, int]]) -> TrainingGroup:
    place = {index: position for position, index in enumerate(dict.fromkeys(index for pair in pairs for index in pair))}
    return TrainingGroup(
        problem_id=group.problem_id,
        prompt=group.prompt,
        texts=tuple(group.texts[index] for index in place),
        pairs=tuple((place[chosen], place[rejected]) for chosen, rejected in pairs),
    )


def plan_steps(portions: Sequence[Portion], *, batch_size: int) -> list[Step]:
    """Steps of consecutive whole problems with at least ``batch_size`` pairs (the last may have fewer). Each part of a
    problem is a separate step."""
    steps: list[Step] = []
    taken: list[Portion] = []
    num_pairs = 0
    for portion in portions:
        if portion.share < 1:
            steps.append(Step((portion,)))
            continue
        taken.append(portion)
        num_pairs += len(portion.group.pairs)
        if num_pairs >= batch_size:
            steps.append(Step(tuple(taken)))
            taken, num_pairs = [], 0
    if taken:
        steps.append(Step(tuple(taken)))
    return steps


def learning_rate_factor(step: int, *, num_steps: int, warmup_frac: float) -> float:
    """Linear warm-up to 1 over the first ``warmup_frac`` of the steps, then a cosine to 0 (paper). Steps are
    counted from 0."""
    num_warmup = math.ceil(num_steps * warmup_frac)
    if step < num_warmup:
        return (step + 1) / num_warmup
    progress = (step - num_warmup) / max(1, num_steps - num_warmup)
    return 0.5 * (1.0 + math.cos(math.pi * progress))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterData:
    """Training data of one adapter."""

    train: Sequence[TrainingGroup]
    """Training groups of the adapter's bag."""
    validation: Sequence[TrainingGroup]
    """Validation problems, the same for all adapters. If empty, the last epoch is stored, without early stopping."""
    fingerprint: str | None = None
    """Content id of the data of all adapters of the ensemble. Default: the content id of the validation problems."""


def data_fingerprint(*parts: Sequence[TrainingGroup]) -> str:
    """Content id of the data: problems, texts and pairs."""
    return content_id([[[group.problem_id, list(group.texts), list(group.pairs)] for group in part] for part in parts])
