"""Which problems an optimiser step takes, and its learning rate. Decided before training starts; no torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from raydebm.pairs import TrainingGroup


@dataclass(frozen=True, slots=True)
class Step:
    """Whole problems whose pairs make one optimiser step."""

    groups: tuple[TrainingGroup, ...]

    @property
    def num_pairs(self) -> int:
        return sum(len(group.pairs) for group in self.groups)


def plan_steps(groups: Sequence[TrainingGroup], *, batch_size: int) -> list[Step]:
    """Consecutive problems until a step has ``batch_size`` pairs; the last step may have fewer."""
    steps: list[Step] = []
    taken: list[TrainingGroup] = []
    num_pairs = 0
    for group in groups:
        taken.append(group)
        num_pairs += len(group.pairs)
        if num_pairs >= batch_size:
            steps.append(Step(tuple(taken)))
            taken, num_pairs = [], 0
    if taken:
        steps.append(Step(tuple(taken)))
    return steps


def learning_rate_factor(step: int, *, num_steps: int, warmup_frac: float) -> float:
    """Linear warm-up to 1 over the first share of steps, then a cosine to 0 (paper). ``step`` counts from 0."""
    num_warmup = math.ceil(num_steps * warmup_frac)
    if step < num_warmup:
        return (step + 1) / num_warmup
    progress = (step - num_warmup) / max(1, num_steps - num_warmup)
    return 0.5 * (1.0 + math.cos(math.pi * progress))
