"""Watches whether a promise still holds while traffic runs, with an error bound that holds at every moment.

``ErrorWatch`` needs outcomes that somebody reported: it bets against "at most a share alpha of the answers given out is
wrong". ``ConfidenceWatch`` needs none: it bets against "confidences still come from where the calibration problems came
from". Each raises a false alarm, ever, with probability at most delta (Ville's inequality), so looking at it after
every request costs nothing. Both depend on the order in which requests arrive. State is plain JSON and can be resumed.

Does not know: Ray, torch, files, clocks.
"""

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from random import Random
from typing import Any

from raydebm.errors import ConfigError
from raydebm.identity import seed_for

MAX_BET = 0.75
"""Share of the largest admissible bet, 1 / alpha, that is used at most: one right answer then costs at most three
quarters of the wealth."""
JUMP = 0.01
"""Rate at which the simple jumper redistributes its capital (Vovk et al. 2021)."""
DIRECTIONS = (-1.0, 0.0, 1.0)
"""Bets of the simple jumper: on low confidences, on neither, on high ones."""
MAX_SCORES = 100_000
"""Confidences that a ``ConfidenceWatch`` remembers; later ones are ranked among these and not added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorWatch:
    """A betting martingale against H0: each answered request is wrong with probability at most ``alpha``.

    The wealth M_t = prod_{i <= t} (1 + lambda_i (err_i - alpha)), with M_0 = 1, is a nonnegative supermartingale under
    H0 because the bet lambda_i in [0, 1 / alpha) depends on earlier outcomes only. Ville's inequality bounds the
    probability that M_t ever reaches 1 / delta by delta. The bet is the approximate GRAPA rule (aGRAPA) of Waudby-Smith
    and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2024: the regularised mean's distance
    from alpha over variance plus its square, clipped to [0, ``MAX_BET`` / alpha]. The prior mean is alpha, so the first
    bet is 0.

    ``log_restarted`` is the restarted form, an e-detector (Shin, Ramdas and Rinaldo 2023): the Shiryaev-Roberts sum
    R_t = sum_{j <= t} prod_{j <= i <= t} (1 + lambda_i (err_i - alpha)), by R_t = (1 + R_{t-1}) times the newest
    factor. It forgets wealth that was lost before a change, and promises something weaker: where R_t >= c is the alarm,
    at least c outcomes lie between two false alarms on average. Nothing is suspended by it.

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
    log_sum: float = 0.0
    """Natural logarithm of 1 + R_t."""
    alarmed_at: int | None = None
    """After how many outcomes M_t first reached 1 / delta; an alarm stays."""

    def __post_init__(self) -> None:
        _check_rate("alpha", self.alpha)
        _check_rate("delta", self.delta)

    @property
    def bet(self) -> float:
        """lambda of the next outcome."""
        mean = (self.alpha + self.num_wrong) / (self.num + 1)
        variance = (self.alpha * (1 - self.alpha) + self.squares) / (self.num + 1)
        gap = mean - self.alpha
        return min(gap / (variance + gap * gap), MAX_BET / self.alpha) if gap > 0 else 0.0

    @property
    def log_restarted(self) -> float:
        """Natural logarithm of R_t; -inf before the first outcome."""
        return math.log(math.expm1(self.log_sum)) if 0 < self.log_sum < 700 else self.log_sum or -math.inf

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
            log_sum=_log_of_one_plus(self.log_sum + log_factor),
            alarmed_at=_first(self.alarmed_at, num, log_wealth >= self.log_alarm),
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
        _check_keys(value, [each.name for each in fields(cls)], "an error watch")
        return cls(**value)


class ConfidenceWatch:
    """A conformal test martingale against H0: confidences are exchangeable with those of the calibration sample.

    The p-value of a confidence is its smoothed rank among the calibration sample and all confidences before it,
    p = (#{c < s} + U (#{c = s} + 1)) / (n + 1), so that low p means unusually low confidence; under H0 these p-values
    are independent and uniform (Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2nd edition,
    8.1). U is drawn from a seed and the position, so that a replay gives the same numbers. The simple jumper (Vovk et
    al., "Retrain or not retrain: conformal test martingales for change-point detection", 2021) bets f(p) = 1 + e (p -
    1/2) for e in {-1, 0, 1} and moves a share ``JUMP`` of its capital among the three at each step.

    A change in either direction is an alarm, because a promise that was calibrated on one distribution says nothing
    about another. It cannot tell harmless changes from harmful ones: outcomes can.
    """

    def __init__(self, calibration: Iterable[float], *, delta: float = 0.05, seed: int = 0) -> None:
        """
        Args:
            calibration: confidences of the calibration problems, in any order; any finite score will do.
            delta: probability of a false alarm, ever.
            seed: of the tie-breaking.

        Raises:
            ConfigError: no calibration confidences, one that is not finite, or a delta outside (0, 1).
        """
        _check_rate("delta", delta)
        self.delta, self.seed = delta, seed
        self._scores = sorted(map(_finite, calibration))
        if not self._scores:
            raise ConfigError("a confidence watch needs the confidences of at least one calibration problem, got none")
        self._shares = [1 / len(DIRECTIONS)] * len(DIRECTIONS)
        self.num = 0
        """Confidences so far, calibration not counted."""
        self.log_capital = 0.0
        """Natural logarithm of the martingale."""
        self.alarmed_at: int | None = None
        """After how many confidences it first reached 1 / delta; an alarm stays."""

    @property
    def alarmed(self) -> bool:
        """Whether the alarm was ever raised; it is not withdrawn."""
        return self.alarmed_at is not None

    def observe(self, confidence: float) -> float:
        """Take one more confidence, in the order of arrival; returns its p-value.

        Raises:
            ConfigError: it is not finite.
        """
        score = _finite(confidence)
        p = self._p_value(score)
        if len(self._scores) < MAX_SCORES:
            insort(self._scores, score)
        self._bet(p)
        self.num += 1
        self.alarmed_at = _first(self.alarmed_at, self.num, self.log_capital >= -math.log(self.delta))
        return p

    def _p_value(self, score: float) -> float:
        below, at_most = bisect_left(self._scores, score), bisect_right(self._scores, score)
        uniform = Random(seed_for(self.seed, "conformal", self.num)).random()
        return (below + uniform * (at_most - below + 1)) / (len(self._scores) + 1)

    def _bet(self, p: float) -> None:
        """Shares are kept relative to the capital, so that nothing overflows or vanishes."""
        mixed = [(1 - JUMP) * share + JUMP / len(DIRECTIONS) for share in self._shares]
        grown = [share * (1 + e * (p - 0.5)) for share, e in zip(mixed, DIRECTIONS, strict=True)]
        total = math.fsum(grown)
        self._shares = [share / total for share in grown]
        self.log_capital += math.log(total)

    def to_json(self) -> dict[str, Any]:
        """The state from which the watch goes on after a restart."""
        return {
            "delta": self.delta,
            "seed": self.seed,
            "scores": list(self._scores),
            "shares": list(self._shares),
            "num": self.num,
            "log_capital": self.log_capital,
            "alarmed_at": self.alarmed_at,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "ConfidenceWatch":
        """Inverse of ``to_json``.

        Raises:
            ConfigError: a key is missing, unknown, or has a value that no state has.
        """
        names = ("delta", "seed", "scores", "shares", "num", "log_capital", "alarmed_at")
        _check_keys(value, names, "a confidence watch")
        watch = cls(value["scores"], delta=value["delta"], seed=value["seed"])
        if len(value["shares"]) != len(DIRECTIONS):
            raise ConfigError(f"the state of a confidence watch has {len(DIRECTIONS)} shares, got {value['shares']}")
        watch._shares = [float(share) for share in value["shares"]]
        watch.num, watch.log_capital, watch.alarmed_at = value["num"], value["log_capital"], value["alarmed_at"]
        return watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension:
    """Whether a promise is still claimed. A suspended claim changes no decision."""

    suspended: bool = False
    reason: str | None = None
    """One sentence with the numbers; None while nothing is suspended."""


def suspension_of(errors: ErrorWatch | None = None, confidences: ConfidenceWatch | None = None) -> Suspension:
    """What the alarms mean for the claim. Of two watches each has a delta of its own, and the chances of a false alarm
    add up."""
    if errors is not None and errors.alarmed_at is not None:
        reason = (
            f"{errors.num_wrong} of {errors.num} reported answers are wrong, which contradicts an error rate of at "
            f"most {errors.alpha:g} (alarm after {errors.alarmed_at} outcomes, false alarms at most {errors.delta:g})"
        )
        return Suspension(suspended=True, reason=reason)
    if confidences is not None and confidences.alarmed_at is not None:
        reason = (
            "confidences no longer look like those of the calibration problems (alarm after "
            f"{confidences.alarmed_at} decisions, false alarms at most {confidences.delta:g})"
        )
        return Suspension(suspended=True, reason=reason)
    return Suspension()


def _first(before: int | None, now: int, happened: bool) -> int | None:
    return now if before is None and happened else before


def _log_of_one_plus(log_value: float) -> float:
    """log(1 + exp(x)) without overflow."""
    return log_value + math.log1p(math.exp(-log_value)) if log_value > 0 else math.log1p(math.exp(log_value))


def _finite(score: float) -> float:
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise ConfigError(f"a confidence must be a finite number, got {score!r}")
    return float(score)


def _check_rate(name: str, value: float) -> None:
    if not 0 < value < 1:  # written so that NaN fails too
        raise ConfigError(f"{name} must be strictly between 0 and 1, got {value}")


def _check_keys(value: Mapping[str, Any], names: Iterable[str], what: str) -> None:
    wanted = set(names)
    if set(value) != wanted:
        raise ConfigError(
            f"the state of {what} has the keys {', '.join(sorted(wanted))}; got {', '.join(sorted(value))}"
        )
