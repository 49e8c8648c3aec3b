"""A promise about the answers that are given out, by learn-then-test (arXiv 2110.01052).

The promise: with probability at least 1 - delta over the calibration problems, the share of wrong answers among those
given out is at most alpha, for problems like the calibration problems (exchangeable with them).

For a threshold tau, n(tau) calibration problems are answered (confidence >= tau) and w(tau) of these answers are wrong.
Given n, the wrong ones are binomial with the true risk, so

    p(tau) = P(Bin(n(tau), alpha) <= w(tau))

is a p-value of "the risk at tau is above alpha". Losses in [0, 1], such as violation scores, are bet against
(``risk_bounds.betting_p_value``), which counts how little they scatter. Several thresholds are tested without inflating
the error by walking from strict to lenient, from four coverages (``STARTS``), each at level delta / 4, and stopping
at the first that does not pass. The thresholds are fixed by confidences alone, never by labels. Where a threshold also
changes what is sampled, each is tested on what its own policy would have sampled.

The smallest error at a coverage (``certify_smallest``) fixes one threshold by confidences alone and walks over
errors: "the risk at tau is above alpha" is tested for alpha = 0.999, 0.998, ... in this order, each at level delta,
until the first that does not pass. This is fixed-sequence testing (arXiv 2110.01052, section 4; Bauer 1991): with
probability at least 1 - delta no true hypothesis of the sequence is rejected, so the last alpha that passed, although
the labels chose it, is certified at level delta.

No rule can promise alpha while it answers more than (1 - mu) / (1 - alpha) of the problems, where mu is the share of
wrong answers when every problem is answered (arXiv 2606.29054).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from raydebm.decision.evidence.groups import Floats
from raydebm.decision.guarantee.risk_bounds import (
    betting_p_value,
    betting_upper_bound,
    risk_p_value,
    risk_upper_bound,
)
from raydebm.errors import ConfigError

STARTS: tuple[float, ...] = (0.10, 0.25, 0.40, 0.60)
"""Coverages from which the walks begin."""
BOUNDED_STARTS: tuple[float, ...] = (0.25, 0.50, 0.75, 0.90)
"""The same where losses are not 0 or 1: a bet needs many losses to win, however small they are."""
STEP = 0.01
"""Coverage between two thresholds of a walk."""
MAX_PROBLEMS = 100_000
ERRORS = 1000
"""The smallest error is found to 1 / ERRORS."""


AtThreshold = Callable[[float], tuple[Floats, Floats]]
"""(P,) confidences and (P,) losses of the final answers under the policy of a threshold; NaN for unlabelled."""
FloorAt = Callable[[float], float]
"""The lowest threshold at which something is known about the answers, under the policy that a threshold implies."""


def no_floor(tau: float) -> float:
    """Something is known at every threshold."""
    return -math.inf


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ByThreshold:
    """Problems whose sampling depends on the threshold."""

    at: AtThreshold
    thresholds: Floats
    """What the tested thresholds are quantiles of; may depend on confidences and never on labels."""


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
    """Smallest error that these problems certify where their walks begin."""
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
    floor_at: FloorAt = no_floor,
    by_threshold: ByThreshold | None = None,
) -> Guarantee:
    """Find the lowest threshold at which the promise holds.

    Args:
        confidence_of: (P,), confidence of each calibration problem's final answer; -inf without one.
        losses: (P,), 1 for a wrong answer and 0 for a right one, or a violation score.
        max_error: alpha.
        confidence: 1 - delta.
        binary: losses are 0 or 1.
        floor_at: thresholds below their own floor are not tested; it may depend on confidences and never on labels.
        by_threshold: where the threshold changes what is sampled; the first two arguments then only say what happens
            when every problem is answered.

    Raises:
        ConfigError: the promise is not strictly between 0 and 1, no problem is given, or a value is NaN.
    """
    check_promise(max_error, confidence)
    problems = _Problems(confidence_of, losses, binary=binary, by_threshold=by_threshold)
    thresholds, delta = confidence_of if by_threshold is None else by_threshold.thresholds, 1 - confidence
    walks = _walks(thresholds, problems.starts, floor_at)
    tested = _test(walks, problems, alpha=max_error, delta=delta)
    best = min((row for row in tested if row.certified), key=lambda row: row.tau, default=None)
    return _guarantee(
        best,
        tested,
        losses,
        max_error=max_error,
        confidence=confidence,
        more_problems=None if best is not None else _more_problems(tested, problems, max_error, delta, len(losses)),
        smallest_error=_smallest_error(walks, problems, delta),
    )


def certify_smallest(
    confidence_of: Floats,
    losses: Floats,
    *,
    min_coverage: float,
    confidence: float,
    binary: bool = True,
    floor_at: FloorAt = no_floor,
    by_threshold: ByThreshold | None = None,
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
        floor_at: as for ``certify``.
        by_threshold: as for ``certify``.

    Raises:
        ConfigError: as for ``certify``, or ``min_coverage`` is not in (0, 1].
    """
    check_promise(0.5, confidence)
    if not 0 < min_coverage <= 1:
        raise ConfigError(f"min_coverage must be above 0 and at most 1, got {min_coverage}")
    problems = _Problems(confidence_of, losses, binary=binary, by_threshold=by_threshold)
    tau = float(np.sort(confidence_of)[::-1][math.ceil(round(min_coverage * len(losses), 9)) - 1])
    is_testable = math.isfinite(tau) and tau >= floor_at(tau)
    max_error = _smallest_alpha(problems, [tau] if is_testable else [], 1 - confidence)
    tested = [] if max_error is None else [_row(tau, problems, alpha=max_error, level=1 - confidence)]
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


class _Problems:
    """P calibration problems, by threshold."""

    def __init__(
        self, confidence_of: Floats, losses: Floats, *, binary: bool, by_threshold: ByThreshold | None
    ) -> None:
        """Raises ConfigError where there is no problem, or a value is NaN."""
        if len(losses) == 0:
            raise ConfigError("a promise needs labelled problems, got none; label some, or run without a promise")
        if np.isnan(confidence_of).any() or np.isnan(losses).any():
            raise ConfigError(
                "a promise needs a confidence and a label for every problem; leave unlabelled problems out"
            )
        self.starts = STARTS if binary else BOUNDED_STARTS
        self._at = (lambda _: (confidence_of, losses)) if by_threshold is None else by_threshold.at
        self._binary = binary
        self._losses: dict[float, Floats] = {}
        self._num_labelled: dict[float, int] = {}

    def losses(self, tau: float) -> Floats:
        """Losses of the problems that are answered at a threshold, in a random order that follows from P alone: by
        confidence the first losses would be the low ones, and a bet on them no fair one."""
        if tau not in self._losses:
            confidence_of, losses = self._at(tau)
            order = np.argsort(np.random.default_rng(len(losses)).permutation(len(losses)))
            labelled = ~np.isnan(losses)
            self._num_labelled[tau] = int(labelled.sum())
            self._losses[tau] = losses[order][(labelled & (confidence_of >= tau))[order]]
        return self._losses[tau]

    def coverage(self, tau: float) -> float:
        """Share of the labelled problems that is answered."""
        answered = len(self.losses(tau))
        return answered / self._num_labelled[tau] if answered else 0.0

    def p_value(self, tau: float, alpha: float, *, factor: float = 1.0) -> float:
        """p-value of "the risk is above alpha", had there been ``factor`` times as many problems of the same losses."""
        losses = self.losses(tau)
        more = round(factor * len(losses))
        if not self._binary:
            return betting_p_value(np.resize(losses, more), alpha)
        return risk_p_value(math.fsum(losses) * (more / len(losses) if len(losses) else 1.0), more, alpha)

    def upper_bound(self, tau: float, level: float) -> float:
        """The largest risk that the answered problems do not reject at this level."""
        losses = self.losses(tau)
        if self._binary:
            return risk_upper_bound(math.fsum(losses), len(losses), level)
        return betting_upper_bound(losses, level)


def _walks(confidence_of: Floats, starts: Sequence[float], floor_at: FloorAt) -> list[list[float]]:
    """Thresholds of each walk, strict to lenient: quantiles of the confidences from which on something is known."""
    usable = np.sort(confidence_of[np.isfinite(confidence_of)])[::-1]
    if not len(usable):
        return []
    walks = []
    for start in starts:
        coverages = np.arange(start, 1 + STEP / 2, STEP)
        places = np.minimum(np.ceil(coverages * len(confidence_of)).astype(int), len(usable)) - 1
        walks.append(
            list(dict.fromkeys(float(usable[place]) for place in places if usable[place] >= floor_at(usable[place])))
        )
    return [walk for walk in walks if walk]


def _test(walks: Sequence[Sequence[float]], problems: _Problems, *, alpha: float, delta: float) -> list[ThresholdTest]:
    """Walk from every start until the first threshold that does not pass; each threshold is listed once."""
    level, rows = delta / len(problems.starts), dict[float, ThresholdTest]()
    for walk in walks:
        for tau in walk:
            if tau not in rows:
                rows[tau] = _row(tau, problems, alpha=alpha, level=level)
            if not rows[tau].certified:
                break
    return list(rows.values())


def _row(tau: float, problems: _Problems, *, alpha: float, level: float) -> ThresholdTest:
    losses, p_value = problems.losses(tau), problems.p_value(tau, alpha)
    return ThresholdTest(
        tau=tau,
        answered=len(losses),
        wrong=math.fsum(losses),
        coverage=problems.coverage(tau),
        upper_bound=problems.upper_bound(tau, level),
        p_value=p_value,
        certified=p_value <= level,
    )


def _more_problems(
    tested: Sequence[ThresholdTest], problems: _Problems, alpha: float, delta: float, count: int
) -> int | None:
    """How many more problems would certify the most promising threshold, if its losses stayed as they are."""
    level, needed = delta / len(problems.starts), []
    for row in tested:
        if row.answered == 0 or row.wrong / row.answered >= alpha:
            continue
        factor = 1.0
        while factor * count < MAX_PROBLEMS:
            if problems.p_value(row.tau, alpha, factor=factor) <= level:
                needed.append(math.ceil(factor * count) - count)
                break
            factor *= 1.05
    return min(needed, default=None)


def _smallest_error(walks: Sequence[Sequence[float]], problems: _Problems, delta: float) -> float | None:
    """The smallest alpha, to 1 / ERRORS, that is certified at any threshold. A walk certifies something exactly where
    its first threshold passes."""
    return _smallest_alpha(problems, [walk[0] for walk in walks], delta / len(problems.starts))


def _smallest_alpha(problems: _Problems, taus: Sequence[float], level: float) -> float | None:
    """The smallest alpha of the grid that passes at any of these thresholds; None where none does. What passes at alpha
    passes above it, so that the search may halve."""

    def passes(alpha: float) -> bool:
        return any(problems.p_value(tau, alpha) <= level for tau in taus)

    low, high = 0, ERRORS - 1
    if not passes(high / ERRORS):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle / ERRORS) else (middle, high)
    return high / ERRORS
