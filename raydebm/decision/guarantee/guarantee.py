"""A promise about the answers that are given out, by learn-then-test (arXiv 2110.01052).

The promise: with probability at least 1 - delta over the calibration problems, the share of wrong answers among those
given out is at most alpha, for problems like the calibration problems (exchangeable with them).

For a threshold tau, n(tau) calibration problems are answered (confidence >= tau) and w(tau) of these answers are wrong.
Given n, the wrong ones are binomial with the true risk, so

    p(tau) = P(Bin(n(tau), alpha) <= w(tau))

is a p-value of "the risk at tau is above alpha". Losses in [0, 1], such as violation scores, are bet against
(``risk_bounds.betting_p_value``), which counts how little they scatter. Several thresholds are tested without inflating
the error by walking from strict to lenient, from ``STARTS`` different coverages, each at level delta / 4, and stopping
at the first that does not pass. The thresholds are fixed by confidences alone, never by labels.

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
from typing import Any, Self

import numpy as np

from raydebm.decision.evidence.groups import Floats, Ints
from raydebm.decision.guarantee.risk_bounds import (
    betting_p_value,
    betting_upper_bound,
    risk_p_value,
    risk_upper_bound,
)
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

    @property
    def certified_thresholds(self) -> list[float]:
        """Every threshold at which the promise holds, strict to lenient; with probability ``confidence`` all at once.
        Nothing is known of thresholds between them."""
        return [row.tau for row in self.table if row.certified]

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
    ranked = _Ranked.of(confidence_of, losses, binary=binary)
    walks, delta = _walks(confidence_of, floor), 1 - confidence
    tested = _test(walks, ranked, alpha=max_error, delta=delta)
    best = min((row for row in tested if row.certified), key=lambda row: row.tau, default=None)
    return _guarantee(
        best,
        tested,
        losses,
        max_error=max_error,
        confidence=confidence,
        more_problems=None if best is not None else _more_problems(tested, ranked, max_error, delta),
        smallest_error=_smallest_error(walks, ranked, delta),
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
    ranked = _Ranked.of(confidence_of, losses, binary=binary)
    tau = float(ranked.confidence[math.ceil(round(min_coverage * len(losses), 9)) - 1])
    is_testable = math.isfinite(tau) and tau >= floor
    max_error = _smallest_alpha(ranked, [ranked.answered(tau) if is_testable else 0], 1 - confidence)
    tested = [] if max_error is None else [_row(tau, ranked, alpha=max_error, level=1 - confidence)]
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ranked:
    """P calibration problems, the most confident one first."""

    confidence: Floats
    losses: Floats
    shuffled: Ints
    """The place of each in a random order that follows from P alone."""
    binary: bool

    @classmethod
    def of(cls, confidence_of: Floats, losses: Floats, *, binary: bool) -> Self:
        """Raises ConfigError where there is no problem, or a value is NaN."""
        if len(losses) == 0:
            raise ConfigError("a promise needs labelled problems, got none; label some, or run without a promise")
        if np.isnan(confidence_of).any() or np.isnan(losses).any():
            raise ConfigError(
                "a promise needs a confidence and a label for every problem; leave unlabelled problems out"
            )
        order = np.argsort(-confidence_of, kind="stable")
        shuffled = np.random.default_rng(len(losses)).permutation(len(losses))
        return cls(confidence=confidence_of[order], losses=losses[order], shuffled=shuffled[order], binary=binary)

    def answered(self, tau: float) -> int:
        """Number of problems with at least this confidence."""
        return int(np.searchsorted(-self.confidence, -tau, side="right"))

    def wrong(self, answered: int) -> float:
        """Sum of the losses of the first problems."""
        return math.fsum(self.losses[:answered])

    def p_value(self, answered: int, alpha: float) -> float:
        """p-value of "the risk is above alpha", from the first problems."""
        if self.binary:
            return risk_p_value(self.wrong(answered), answered, alpha)
        return betting_p_value(self._in_random_order(answered), alpha)

    def p_value_of_more(self, answered: int, factor: float, alpha: float) -> float:
        """The same, had there been ``factor`` times as many problems with the same losses."""
        more = round(factor * answered)
        if self.binary:
            return risk_p_value(self.wrong(answered) / answered * more, more, alpha)
        return betting_p_value(np.resize(self._in_random_order(answered), more), alpha)

    def upper_bound(self, answered: int, level: float) -> float:
        """The largest risk that the first problems do not reject at this level."""
        if self.binary:
            return risk_upper_bound(self.wrong(answered), answered, level)
        return betting_upper_bound(self._in_random_order(answered), level)

    def _in_random_order(self, answered: int) -> Floats:
        # By confidence the first losses would be the low ones, and a bet on them no fair one.
        return self.losses[:answered][np.argsort(self.shuffled[:answered])]


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


def _test(walks: Sequence[Sequence[float]], ranked: _Ranked, *, alpha: float, delta: float) -> list[ThresholdTest]:
    """Walk from every start until the first threshold that does not pass; each threshold is listed once."""
    level, rows = delta / len(STARTS), dict[float, ThresholdTest]()
    for walk in walks:
        for tau in walk:
            if tau not in rows:
                rows[tau] = _row(tau, ranked, alpha=alpha, level=level)
            if not rows[tau].certified:
                break
    return list(rows.values())


def _row(tau: float, ranked: _Ranked, *, alpha: float, level: float) -> ThresholdTest:
    answered = ranked.answered(tau)
    p_value = ranked.p_value(answered, alpha)
    return ThresholdTest(
        tau=tau,
        answered=answered,
        wrong=ranked.wrong(answered),
        coverage=answered / len(ranked.losses),
        upper_bound=ranked.upper_bound(answered, level),
        p_value=p_value,
        certified=p_value <= level,
    )


def _more_problems(tested: Sequence[ThresholdTest], ranked: _Ranked, alpha: float, delta: float) -> int | None:
    """How many more problems would certify the most promising threshold, if its losses stayed as they are."""
    level, count, needed = delta / len(STARTS), len(ranked.losses), []
    for row in tested:
        if row.answered == 0 or row.wrong / row.answered >= alpha:
            continue
        factor = 1.0
        while factor * count < MAX_PROBLEMS:
            if ranked.p_value_of_more(row.answered, factor, alpha) <= level:
                needed.append(math.ceil(factor * count) - count)
                break
            factor *= 1.05
    return min(needed, default=None)


def _smallest_error(walks: Sequence[Sequence[float]], ranked: _Ranked, delta: float) -> float | None:
    """The smallest alpha, to 1 / ERRORS, that is certified at any threshold. A walk certifies something exactly where
    its first threshold passes."""
    return _smallest_alpha(ranked, [ranked.answered(walk[0]) for walk in walks], delta / len(STARTS))


def _smallest_alpha(ranked: _Ranked, answered: Sequence[int], level: float) -> float | None:
    """The smallest alpha of the grid that passes for any of these numbers of answered problems; None where none does.
    What passes at alpha passes above it, so that the search may halve."""

    def passes(alpha: float) -> bool:
        return any(ranked.p_value(count, alpha) <= level for count in answered)

    low, high = 0, ERRORS - 1
    if not passes(high / ERRORS):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle / ERRORS) else (middle, high)
    return high / ERRORS
