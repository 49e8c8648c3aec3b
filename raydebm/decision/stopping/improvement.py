"""Stopping where answers cannot be compared (programs, plans): expected improvement of the best reward.

Rewards r = -mu of one problem's samples are normal with unknown mean and variance; with a normal-inverse-gamma prior
the next reward is Student-t distributed. Sampling stops when the expected improvement over the best reward so far is
worth less than a sample costs (BEACON, arXiv 2510.15945; with the noise of each reward, UCB Pandora, arXiv 2510.01394).
The next k samples improve the best by at most k times as much as the next one, so the test covers waves of any size.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from scipy.special import gammaln, stdtr

from raydebm.decision.stopping.state import StopDecision, StopReason
from raydebm.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPrior:
    """Normal-inverse-gamma prior of one problem's rewards.

    The default is Jeffreys' improper prior: the predictive of n rewards is then Student-t with n - 1 degrees of
    freedom, their mean, and scale s sqrt(1 + 1/n), so that at least three rewards are needed.

    Raises:
        ConfigError: a number is not finite, or ``strength`` or ``scale`` is negative.
    """

    mean: float = 0.0
    strength: float = 0.0
    """Pseudo-samples behind the mean (kappa), >= 0."""
    shape: float = -0.5
    """alpha of the inverse gamma, >= -0.5."""
    scale: float = 0.0
    """beta of the inverse gamma, >= 0."""

    def __post_init__(self) -> None:
        finite = all(math.isfinite(value) for value in (self.mean, self.strength, self.shape, self.scale))
        if not finite or self.strength < 0 or self.shape < -0.5 or self.scale < 0:
            raise ConfigError(
                f"a reward prior needs finite numbers, strength and scale >= 0, shape >= -0.5; got {self}"
            )


@dataclass(frozen=True, slots=True)
class Predictive:
    """Student-t distribution of the next reward."""

    degrees: float
    location: float
    scale: float


def predictive_of(rewards: Sequence[float], prior: RewardPrior, *, noise: float = 0.0) -> Predictive | None:
    """The next reward's distribution; None while it has no finite mean and scale (too few rewards for the prior).

    Args:
        rewards: of the samples so far, finite.
        prior: of this task's problems.
        noise: variance of one reward around its true value, >= 0, such as the mean sigma^2 of an ensemble. The best of
            true values is what counts, so the observed spread is reduced by it.
    """
    n = len(rewards)
    strength, shape = prior.strength + n, prior.shape + n / 2
    if n == 0 or 2 * shape <= 1:
        return None
    mean = math.fsum(rewards) / n
    spread = math.fsum((reward - mean) ** 2 for reward in rewards)
    scale = prior.scale + spread / 2 + prior.strength * n * (mean - prior.mean) ** 2 / (2 * strength)
    variance = scale * (strength + 1) / (shape * strength)
    return Predictive(
        degrees=2 * shape,
        location=(prior.strength * prior.mean + n * mean) / strength,
        scale=math.sqrt(max(variance - noise, 0.0)),
    )


def expected_improvement(predictive: Predictive, best: float) -> float:
    """E[(r - best)+] of a Student-t r: scale * (z T(z) + (nu + z^2) / (nu - 1) t(z)), z = (location - best) / scale."""
    if predictive.scale == 0:
        return max(predictive.location - best, 0.0)
    nu, z = predictive.degrees, (predictive.location - best) / predictive.scale
    log_density = (
        gammaln((nu + 1) / 2) - gammaln(nu / 2) - math.log(nu * math.pi) / 2 - (nu + 1) / 2 * math.log1p(z * z / nu)
    )
    return predictive.scale * float(z * stdtr(nu, z) + (nu + z * z) / (nu - 1) * math.exp(log_density))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImprovementRule:
    """Stop when the next sample's expected improvement, times what a unit of reward is worth, is below its cost.

    Raises:
        ConfigError: a number below 0, or a minimum below 1.
    """

    price: float
    """Price of one sample, >= 0, in the unit of ``value``."""
    value: float = 1.0
    """Worth of one unit of reward, >= 0."""
    min_samples: int = 3
    """Never stop before so many, >= 1."""
    prior: RewardPrior = field(default_factory=RewardPrior)

    def __post_init__(self) -> None:
        if not (0 <= self.price < math.inf and 0 <= self.value < math.inf) or self.min_samples < 1:
            raise ConfigError(
                f"an improvement rule needs price and value >= 0 and min_samples >= 1, got price={self.price}, "
                f"value={self.value}, min_samples={self.min_samples}"
            )

    def decide(
        self, rewards: Sequence[float | None], *, max_samples: int, variances: Sequence[float] = ()
    ) -> StopDecision:
        """Judge the rewards so far.

        Args:
            rewards: -mu per sample in the order of sampling; None or NaN where a sample has none.
            max_samples: the budget.
            variances: sigma^2 per reward, where an ensemble gives them.

        Returns:
            The decision; its leader is the index of the best reward, as text.
        """
        known = {index: reward for index, reward in enumerate(rewards) if reward is not None and math.isfinite(reward)}
        best = max(known, key=lambda index: (known[index], -index), default=None)
        remaining = max(max_samples - len(rewards), 0)
        usable = [variance for variance in variances if math.isfinite(variance) and variance >= 0]
        noise = math.fsum(usable) / len(usable) if usable else 0.0
        predictive = predictive_of(list(known.values()), self.prior, noise=noise)
        gain = None if best is None or predictive is None else expected_improvement(predictive, known[best])
        reason = None
        if remaining == 0:
            reason = StopReason.BUDGET
        elif gain is not None and len(rewards) >= self.min_samples and gain * self.value < self.price:
            reason = StopReason.COST
        return StopDecision(
            reason=reason,
            leader=None if best is None else str(best),
            num_samples=len(rewards),
            remaining=remaining,
            expected_gain=gain,
        )
