"""Watches whether a promise still holds while traffic runs, with an error bound that holds at every moment.

``ErrorWatch`` bets, on outcomes that somebody reported, against "at most a share alpha of the answers given out is
wrong". It raises a false alarm, ever, with probability at most delta (Ville's inequality), so looking at it after every
request costs nothing. It depends on the order in which outcomes arrive. State is plain JSON and can be resumed.

Does not know: Ray, torch, files, clocks.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from raydebm.errors import ConfigError

MAX_BET = 0.75
"""Share of the largest admissible bet, 1 / alpha, that is used at most: one right answer then costs at most three
quarters of the wealth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorWatch:
    """A betting martingale against H0: each answered request is wrong with probability at most ``alpha``.

    The wealth M_t = prod_{i <= t} (1 + lambda_i (err_i - alpha)), with M_0 = 1, is a nonnegative supermartingale under
    H0 because the bet lambda_i in [0, 1 / alpha) depends on earlier outcomes only. Ville's inequality bounds the
    probability that M_t ever reaches 1 / delta by delta. The bet is the approximate GRAPA rule (aGRAPA) of Waudby-Smith
    and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2024: the regularised mean's distance
    from alpha over variance plus its square, clipped to [0, ``MAX_BET`` / alpha]. The prior mean is alpha, so the first
    bet is 0.

    Raises:
        ConfigError: alpha or delta is not strictly between 0 and 1.
    """

    alpha: float
    """The promised error rate."""
    delta: float = 0.05
    """Probability of a false alarm, ever."""
    num: int = 0
    """Outcomes so far."""
    num_wrong: int = 0
    squares: float = 0.0
    """Sum of squared distances of each outcome from the regularised mean after it."""
    log_wealth: float = 0.0
    """Natural logarithm of M_t."""
    alarmed_at: int | None = None
    """After how many outcomes M_t first reached 1 / delta; an alarm stays."""

    def __post_init__(self) -> None:
        for name in ("alpha", "delta"):
            if not 0 < getattr(self, name) < 1:  # written so that NaN fails too
                raise ConfigError(f"{name} must be strictly between 0 and 1, got {getattr(self, name)}")

    @property
    def bet(self) -> float:
        """lambda of the next outcome."""
        mean = (self.alpha + self.num_wrong) / (self.num + 1)
        variance = (self.alpha * (1 - self.alpha) + self.squares) / (self.num + 1)
        gap = mean - self.alpha
        return min(gap / (variance + gap * gap), MAX_BET / self.alpha) if gap > 0 else 0.0

    @property
    def log_alarm(self) -> float:
        """Natural logarithm of the wealth that raises an alarm, 1 / delta."""
        return -math.log(self.delta)

    @property
    def alarmed(self) -> bool:
        """Whether the alarm was ever raised; it is not withdrawn."""
        return self.alarmed_at is not None

    def after(self, wrong: bool) -> "ErrorWatch":
        """The state after one more outcome of an answered request, in the order of arrival."""
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

    def to_json(self) -> dict[str, Any]:
        """The state from which the watch goes on after a restart."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "ErrorWatch":
        """Inverse of ``to_json``.

        Raises:
            ConfigError: a key is missing, unknown, or has a value that no state has.
        """
        wanted = {each.name for each in fields(cls)}
        if set(value) != wanted:
            raise ConfigError(
                f"the state of an error watch has the keys {', '.join(sorted(wanted))}; got {', '.join(sorted(value))}"
            )
        return cls(**value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension:
    """Whether a promise is still claimed. A suspended claim changes no decision."""

    suspended: bool = False
    reason: str | None = None
    """One sentence with the numbers; None while nothing is suspended."""


def suspension_of(errors: ErrorWatch) -> Suspension:
    """Whether an alarm suspends the claim, with the reason."""
    if errors.alarmed_at is not None:
        reason = (
            f"{errors.num_wrong} of {errors.num} reported answers are wrong, which contradicts an error rate of at "
            f"most {errors.alpha:g} (alarm after {errors.alarmed_at} outcomes, false alarms at most {errors.delta:g})"
        )
        return Suspension(suspended=True, reason=reason)
    return Suspension()
