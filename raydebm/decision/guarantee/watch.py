"""Monitor a guarantee on live traffic, with an error bound that is valid at every moment.

``ErrorWatch`` bets on reported outcomes against "at most a share alpha of the returned answers is wrong". The
probability that it ever raises a false alarm is at most delta (Ville's inequality), so it can be checked after every
request. The result depends on the order of the outcomes.

Independent of: Ray, torch, files, clocks.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from raydebm.errors import ConfigError

MAX_BET = 0.75
"""Largest bet as a share of the largest admissible one. One right answer then costs at most three quarters of the
wealth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorWatch:
    """A betting martingale against H0: each answered request is wrong with probability at most ``alpha``.

    The wealth M_t = prod_{i <= t} (1 + lambda_i (err_i - alpha)), with M_0 = 1, is a nonnegative supermartingale under
    H0 because the bet lambda_i in [0, 1 / alpha) depends on earlier outcomes only. Ville's inequality bounds the
    probability that M_t ever reaches 1 / delta by delta. The bet follows the approximate GRAPA rule (aGRAPA) of
    Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2024: gap / (variance +
    gap^2), clipped to [0, ``MAX_BET`` / alpha], where gap is the regularised mean minus alpha. The prior mean is alpha,
    so the first bet is 0.

    Raises:
        ConfigError: alpha or delta is not strictly between 0 and 1.
    """

    alpha: float
    """Guaranteed error rate."""
    delta: float = 0.05
    """Maximum probability of ever raising a false alarm."""
    num: int = 0
    """Number of outcomes so far."""
    num_wrong: int = 0
    squares: float = 0.0
    """Sum of squared distances between each outcome and the regularised mean after it."""
    log_wealth: float = 0.0
    """Natural logarithm of M_t."""
    alarmed_at: int | None = None
    """Number of outcomes when M_t first reached 1 / delta. An alarm is permanent."""

    def __post_init__(self) -> None:
        for name in ("alpha", "delta"):
            if not 0 < getattr(self, name) < 1:  # written so that NaN fails too
                raise ConfigError(f"{name} must be strictly between 0 and 1, got {getattr(self, name)}")

    @property
    def bet(self) -> float:
        """lambda for the next outcome."""
        mean = (self.alpha + self.num_wrong) / (self.num + 1)
        variance = (self.alpha * (1 - self.alpha) + self.squares) / (self.num + 1)
        gap = mean - self.alpha
        return min(gap / (variance + gap * gap), MAX_BET / self.alpha) if gap > 0 else 0.0

    @property
    def log_alarm(self) -> float:
        """Natural logarithm of 1 / delta, the wealth at which an alarm is raised."""
        return -math.log(self.delta)

    @property
    def alarmed(self) -> bool:
        """Whether the alarm was ever raised."""
        return self.alarmed_at is not None

    def after(self, wrong: bool) -> "ErrorWatch":
        """State after the next reported outcome of an answered request."""
        error = float(wrong)
        log_factor = math.log1p(self.bet * (error - self.alpha))
        num, num_wrong = self.num + 1, self.num_wrong + wrong
        mean = (self.alpha + num_wrong) / (num + 1)
        log_wealth = self.log_wealth + log_factor
        return replace(
            self,
            num=num,
            num_wrong=num_wrong,
            squares=self.squares + (error - mean) ** 2,
            log_wealth=log_wealth,
            alarmed_at=num if self.alarmed_at is None and log_wealth >= self.log_alarm else self.alarmed_at,
        )

    def after_all(self, wrong: Iterable[bool]) -> "ErrorWatch":
        """The state after several outcomes."""
        watch = self
        for each in wrong:
            watch = watch.after(each)
        return watch


def suspension_of(errors: ErrorWatch) -> str | None:
    """Reason for a suspension, with the numbers. None without an alarm. A suspension does not change decisions."""
    if errors.alarmed_at is None:
        return None
    return (
        f"{errors.num_wrong} of {errors.num} reported answers are wrong, which contradicts an error rate of at most "
        f"{errors.alpha:g} (alarm after {errors.alarmed_at} outcomes, false alarms at most {errors.delta:g})"
    )
