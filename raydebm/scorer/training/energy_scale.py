"""One unit for the energies of members with different backbones.

A difference of two energies is a log odds, but how large it comes out depends on the backbone, and the level of the
energies is arbitrary: the loss compares candidates of one problem only. So the mean over members of several backbones
would follow the one with the largest numbers, and sigma would measure the distance of their levels. Each member's
energies are therefore shifted to mean 0 over the validation texts, and multiplied by the number that minimises the
validation loss (temperature scaling, Guo et al. 2017, arXiv 1706.04599).

Shapes: N distinct texts of the validation problems.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from raydebm.scorer.training.loss import StepPairs

MAX_LOG_SCALE = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyScale:
    """What is done to a member's energies: ``scale * (E - offset)``."""

    scale: float = 1.0
    offset: float = 0.0

    @property
    def shift(self) -> float:
        """What the scaled energies are shifted by."""
        return -self.scale * self.offset


def fit_scale(
    energies_N: Tensor, pairs: StepPairs, *, loss_of: Callable[[Tensor, StepPairs], Tensor], num_problems: int
) -> EnergyScale:
    """Find the offset and scale of a member's energies.

    The logarithm of the scale has a standard normal prior, which counts for little against many problems; it keeps the
    scale finite where all pairs are in order.

    Args:
        energies_N: of the validation texts.
        pairs: all of their pairs.
        loss_of: the training's loss, in nats, mean over problems.
        num_problems: how many problems the loss is the mean of.
    """
    from scipy.optimize import minimize_scalar

    offset = float(energies_N.mean())

    def surprise(log_scale: float) -> float:
        loss = loss_of(math.exp(log_scale) * (energies_N - offset), pairs)
        return num_problems * float(loss) + log_scale**2 / 2

    optimum = minimize_scalar(surprise, bounds=(-MAX_LOG_SCALE, MAX_LOG_SCALE), method="bounded")
    return EnergyScale(scale=math.exp(float(optimum.x)), offset=offset)
