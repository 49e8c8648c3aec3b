"""A promise about the answers that are given out, by learn-then-test (arXiv 2110.01052).

The promise: with probability at least 1 - delta over the calibration problems, the share of wrong answers among those
given out is at most alpha, for problems like the calibration problems (exchangeable with them).

For a threshold tau, n(tau) calibration problems are answered (confidence >= tau) and w(tau) of these answers are wrong.
Given n, the wrong ones are binomial with the true risk, so

    p(tau) = P(Bin(n(tau), alpha) <= w(tau))

is a p-value of "the risk at tau is above alpha". For losses in [0, 1], such as violation scores, the p-value is the
smaller of Hoeffding's and Bentkus's (Hoeffding-Bentkus, arXiv 2110.01052, section 3). Several thresholds are tested
without inflating the error by walking from strict to lenient, from ``STARTS`` different coverages, each at level
delta / 4, and stopping at the first that does not pass. The thresholds are fixed by confidences alone, never by labels.

The smallest error at a coverage (``certify_smallest``) fixes one threshold by confidences alone and walks over
errors: "the risk at tau is above alpha" is tested for alpha = 0.999, 0.998, ... in this order, each at level delta,
until the first that does not pass. This is fixed-sequence testing (arXiv 2110.01052, section 4; Bauer 1991): with
probability at least 1 - delta no true hypothesis of the sequence is rejected, so the last alpha that passed, although
the labels chose it, is certified at level delta.

No rule can promise alpha while it answers more than (1 - mu) / (1 - alpha) of the problems, where mu is the share of
wrong answers when every problem is answered (arXiv 2606.29054).
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import bdtr, betaincinv

from raydebm.decision.evidence.groups import Floats
from raydebm.errors import ConfigError

STARTS = (0.10, 0.25, 0.40, 0.60)
"""Coverages from which the walk begins."""
STEP = 0.01
"""Coverage between two thresholds of a walk."""
MAX_PROBLEMS = 100_000
ERRORS = 1000
"""The smallest error is found to 1 / ERRORS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdTest:
    """One threshold, tested."""

    tau: float
    answered: int
    wrong: float
    """Number of wrong answers; sum of losses where losses are not 0 or 1."""
    coverage: float
    """Share of the problems that are answered."""
    upper_bound: float
    """Upper confidence bound of the risk at this threshold alone, at the level of its test: delta / 4, or delta for the
    one threshold of ``certify_smallest``."""
    p_value: float
    certified: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """What may be promised."""

    max_error: float
    """alpha"""
    confidence: float
    """1 - delta"""
    certified: bool
    tau: float | None
    """Answer at or above this confidence; None where nothing is certified."""
    problems: int
    """Calibration problems."""
    answered: int
    wrong: float
    coverage: float
    upper_bound: float | None
    base_error: float
    """Risk when every problem is answered."""
    max_coverage: float
    """No rule that keeps the promise answers more than this, if ``base_error`` is the true one."""
    more_problems: int | None
    """Further labelled problems that would probably certify some coverage; None where certified or out of reach."""
    smallest_error: float | None
    """Smallest error that these problems certify at any coverage of at least 10 %."""
    table: tuple[ThresholdTest, ...]

    def to_json(self) -> dict[str, Any]:
        """The guarantee with its table, as it stands in a policy file."""
        return {**asdict(self), "table": [asdict(row) for row in self.table]}

    def summary(self) -> dict[str, Any]:
        """The fields that an answer carries."""
        return {
            "max_error": self.max_error,
            "confidence": self.confidence,
            "certified": self.certified,
            "problems": self.problems,
        }


def risk_p_value(losses_sum: float, count: int, alpha: float, *, binary: bool) -> float:
    """p-value of "the mean loss is above alpha" after ``count`` losses in [0, 1] with this sum; 1 without any."""
    if count == 0:
        return 1.0
    if binary:
        return float(bdtr(_whole(losses_sum), count, alpha))
    mean = losses_sum / count
    bentkus = math.e * float(bdtr(_whole(losses_sum), count, alpha))
    hoeffding = math.exp(-count * _kl(min(mean, alpha), alpha))
    return min(bentkus, hoeffding, 1.0)


def _whole(losses_sum: float) -> int:
    """Losses rounded up, but for rounding errors of their sum: an answer that is half wrong counts as wrong."""
    return math.ceil(round(losses_sum, 9))


def _kl(first: float, second: float) -> float:
    """Kullback-Leibler divergence of two coins; infinite where the second never shows a side that the first shows."""
    terms = [(first, second), (1 - first, 1 - second)]
    return math.fsum(p * math.log(p / q) if q > 0 else math.inf for p, q in terms if p > 0)


def risk_upper_bound(losses_sum: float, count: int, level: float, *, binary: bool) -> float:
    """The largest mean loss that is not rejected at this level (Clopper-Pearson for right and wrong)."""
    if count == 0:
        return 1.0
    if binary:
        wrong = _whole(losses_sum)
        return 1.0 if wrong >= count else float(betaincinv(wrong + 1, count - wrong, 1 - level))
    low, high = losses_sum / count, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if risk_p_value(losses_sum, count, middle, binary=False) > level else (low, middle)
    return high


def check_promise(max_error: float, confidence: float) -> None:
    """Refuse a promise that means nothing.

    Raises:
        ConfigError: a value is not strictly between 0 and 1.
    """
    for name, value in (("max_error", max_error), ("confidence", confidence)):
        if not 0 < value < 1:
            raise ConfigError(f"{name} must be strictly between 0 and 1, got {value}")


def certify(
    confidence_of: Floats,
    losses: Floats,
    *,
    max_error: float,
    confidence: float,
    binary: bool = True,
    floor: float = -math.inf,
) -> Guarantee:
    """Find the lowest threshold at which the promise holds.

    Args:
        confidence_of: (P,), confidence of each calibration problem's final answer; -inf without one.
        losses: (P,), 1 for a wrong answer and 0 for a right one, or a violation score.
        max_error: alpha.
        confidence: 1 - delta.
        binary: losses are 0 or 1.
        floor: thresholds below it are not tested, because nothing is known about the answers there; it may depend on
            confidences and never on labels.

    Raises:
        ConfigError: the promise is not strictly between 0 and 1, no problem is given, or a value is NaN.
    """
    check_promise(max_error, confidence)
    ranked, cumulated = _ranked(confidence_of, losses)
    walks, delta = _walks(confidence_of, floor), 1 - confidence
    tested = _test(walks, ranked, cumulated, alpha=max_error, delta=delta, binary=binary)
    best = min((row for row in tested if row.certified), key=lambda row: row.tau, default=None)
    return _guarantee(
        best,
        tested,
        losses,
        max_error=max_error,
        confidence=confidence,
        more_problems=None if best is not None else _more_problems(tested, len(losses), max_error, delta, binary),
        smallest_error=_smallest_error(walks, ranked, cumulated, delta, binary),
    )


def certify_smallest(
    confidence_of: Floats,
    losses: Floats,
    *,
    min_coverage: float,
    confidence: float,
    binary: bool = True,
    floor: float = -math.inf,
) -> Guarantee:
    """Find the smallest error that can be promised while at least a share of the problems is answered.

    The threshold is the highest one that answers ``min_coverage`` of the problems, so labels choose the error alone, by
    fixed-sequence testing over a grid of errors from large to small (see the top of this module).

    Args:
        confidence_of: as for ``certify``.
        losses: as for ``certify``.
        min_coverage: share of the problems, in (0, 1].
        confidence: 1 - delta.
        binary: losses are 0 or 1.
        floor: as for ``certify``.

    Raises:
        ConfigError: as for ``certify``, or ``min_coverage`` is not in (0, 1].
    """
    check_promise(0.5, confidence)
    if not 0 < min_coverage <= 1:
        raise ConfigError(f"min_coverage must be above 0 and at most 1, got {min_coverage}")
    ranked, cumulated = _ranked(confidence_of, losses)
    tau = float(ranked[math.ceil(round(min_coverage * len(ranked), 9)) - 1])
    is_testable = math.isfinite(tau) and tau >= floor
    answered, wrong = _answered(tau, ranked, cumulated) if is_testable else (0, 0.0)
    max_error = _smallest_alpha([(answered, wrong)], 1 - confidence, binary=binary)
    if max_error is None:
        tested = []
    else:
        tested = [_row(tau, ranked, cumulated, alpha=max_error, level=1 - confidence, binary=binary)]
    best = tested[0] if tested else None
    highest = (ERRORS - 1) / ERRORS
    return _guarantee(
        best,
        tested,
        losses,
        max_error=highest if max_error is None else max_error,
        confidence=confidence,
        more_problems=None,
        smallest_error=max_error,
    )


def _guarantee(
    best: ThresholdTest | None,
    tested: Sequence[ThresholdTest],
    losses: Floats,
    *,
    max_error: float,
    confidence: float,
    more_problems: int | None,
    smallest_error: float | None,
) -> Guarantee:
    """The guarantee at a certified threshold, or without one."""
    base_error = float(losses.mean())
    return Guarantee(
        max_error=max_error,
        confidence=confidence,
        certified=best is not None,
        tau=None if best is None else best.tau,
        problems=len(losses),
        answered=0 if best is None else best.answered,
        wrong=0 if best is None else best.wrong,
        coverage=0.0 if best is None else best.coverage,
        upper_bound=None if best is None else best.upper_bound,
        base_error=base_error,
        max_coverage=min((1 - base_error) / (1 - max_error), 1.0),
        more_problems=more_problems,
        smallest_error=smallest_error,
        table=tuple(sorted(tested, key=lambda row: -row.tau)),
    )


def _ranked(confidence_of: Floats, losses: Floats) -> tuple[Floats, Floats]:
    """(confidences from high to low, sums of the losses of the first 0, 1, ... of them)."""
    if len(losses) == 0:
        raise ConfigError("a promise needs labelled problems, got none; label some, or run without a promise")
    if np.isnan(confidence_of).any() or np.isnan(losses).any():
        raise ConfigError("a promise needs a confidence and a label for every problem; leave unlabelled problems out")
    order = np.argsort(-confidence_of, kind="stable")
    return confidence_of[order], np.concatenate([[0.0], np.cumsum(losses[order])])


def _walks(confidence_of: Floats, floor: float) -> list[list[float]]:
    """Thresholds of each walk, strict to lenient: quantiles of the confidences that are not below the floor."""
    usable = np.sort(confidence_of[np.isfinite(confidence_of)])[::-1]
    if not len(usable):
        return []
    walks = []
    for start in STARTS:
        coverages = np.arange(start, 1 + STEP / 2, STEP)
        places = np.minimum(np.ceil(coverages * len(confidence_of)).astype(int), len(usable)) - 1
        walks.append(list(dict.fromkeys(float(usable[place]) for place in places if usable[place] >= floor)))
    return [walk for walk in walks if walk]


def _test(
    walks: Sequence[Sequence[float]], ranked: Floats, cumulated: Floats, *, alpha: float, delta: float, binary: bool
) -> list[ThresholdTest]:
    """Walk from every start until the first threshold that does not pass; each threshold is listed once."""
    level, rows = delta / len(STARTS), dict[float, ThresholdTest]()
    for walk in walks:
        for tau in walk:
            if tau not in rows:
                rows[tau] = _row(tau, ranked, cumulated, alpha=alpha, level=level, binary=binary)
            if not rows[tau].certified:
                break
    return list(rows.values())


def _row(tau: float, ranked: Floats, cumulated: Floats, *, alpha: float, level: float, binary: bool) -> ThresholdTest:
    answered, wrong = _answered(tau, ranked, cumulated)
    p_value = risk_p_value(wrong, answered, alpha, binary=binary)
    return ThresholdTest(
        tau=tau,
        answered=answered,
        wrong=wrong,
        coverage=answered / len(ranked),
        upper_bound=risk_upper_bound(wrong, answered, level, binary=binary),
        p_value=p_value,
        certified=p_value <= level,
    )


def _answered(tau: float, ranked: Floats, cumulated: Floats) -> tuple[int, float]:
    """(number of problems with at least this confidence, sum of their losses)."""
    answered = int(np.searchsorted(-ranked, -tau, side="right"))
    return answered, float(cumulated[answered])


def _more_problems(tested: Sequence[ThresholdTest], count: int, alpha: float, delta: float, binary: bool) -> int | None:
    """How many more problems would certify the most promising threshold, if its error rate stayed as it is."""
    level, needed = delta / len(STARTS), []
    for row in tested:
        if row.answered == 0 or row.wrong / row.answered >= alpha:
            continue
        rate, factor = row.wrong / row.answered, 1.0
        while factor * count < MAX_PROBLEMS:
            answered = round(factor * row.answered)
            if risk_p_value(rate * answered, answered, alpha, binary=binary) <= level:
                needed.append(math.ceil(factor * count) - count)
                break
            factor *= 1.05
    return min(needed, default=None)


def _smallest_error(
    walks: Sequence[Sequence[float]], ranked: Floats, cumulated: Floats, delta: float, binary: bool
) -> float | None:
    """The smallest alpha, to 1 / ERRORS, that is certified at any threshold. A walk certifies something exactly where
    its first threshold passes."""
    firsts = [_answered(walk[0], ranked, cumulated) for walk in walks]
    return _smallest_alpha(firsts, delta / len(STARTS), binary=binary)


def _smallest_alpha(tested: Sequence[tuple[int, float]], level: float, *, binary: bool) -> float | None:
    """The smallest alpha of the grid that passes for any of these (answered, losses); None where none does. What passes
    at alpha passes above it, so that the search may halve."""

    def passes(alpha: float) -> bool:
        return any(risk_p_value(wrong, answered, alpha, binary=binary) <= level for answered, wrong in tested)

    low, high = 0, ERRORS - 1
    if not passes(high / ERRORS):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle / ERRORS) else (middle, high)
    return high / ERRORS
