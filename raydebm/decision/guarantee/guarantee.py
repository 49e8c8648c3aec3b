"""Guarantee on the error rate of returned answers, by learn-then-test (arXiv 2110.01052).

With probability at least 1 - delta over the calibration problems, the share of wrong answers among those returned is at
most alpha, for problems exchangeable with the calibration problems.

For a threshold tau, n(tau) calibration problems are answered (confidence >= tau) and w(tau) of these answers are wrong.
Given n, the number of wrong ones is binomial with the true risk, so

    p(tau) = P(Bin(n(tau), alpha) <= w(tau))

is a p-value of "the risk at tau is above alpha". Losses in [0, 1], such as violation scores, are tested by betting
(``risk_bounds.betting_p_value``), which uses their small variance. Several thresholds are tested without inflating the
error, by fixed-sequence testing: four sequences of thresholds start at different coverages (``STARTS``), each is tested
from strict to lenient at level delta / 4, until the first threshold that does not pass. Thresholds are chosen
from confidences only, never from labels. Where a threshold also changes the samples, it is tested on the samples of its
own policy.

The smallest error at a coverage (``certify_smallest``) uses one threshold, chosen from confidences only, and a sequence
of errors: "the risk at tau is above alpha" is tested for alpha = 0.999, 0.998, ... in this order, each at level delta,
until the first that does not pass (arXiv 2110.01052, section 4; Bauer 1991). With probability at least 1 - delta no
true hypothesis of the sequence is rejected, so the last alpha that passed is certified at level delta although labels
chose it.

No rule can guarantee alpha and answer more than (1 - mu) / (1 - alpha) of the problems, where mu is the share of wrong
answers if every problem is answered (arXiv 2606.29054).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from raydebm.decision.guarantee.risk_bounds import betting_p_value, betting_upper_bound, risk_p_value, risk_upper_bound
from raydebm.decision.table import Floats
from raydebm.errors import ConfigError

STARTS: tuple[float, ...] = (0.10, 0.25, 0.40, 0.60)
"""Coverages at which the sequences of thresholds start."""
BOUNDED_STARTS: tuple[float, ...] = (0.25, 0.50, 0.75, 0.90)
"""``STARTS`` for losses that are not 0 or 1: a test by betting needs more problems, even if the losses are small."""
STEP = 0.01
"""Difference in coverage between neighbouring thresholds of a sequence."""
MAX_PROBLEMS = 100_000
ERRORS = 1000
"""Resolution of the smallest error: 1 / ERRORS."""


AtThreshold = Callable[[float], tuple[Floats, Floats]]
"""(P,) confidences and (P,) losses of the final answers under the policy of a threshold. NaN if unlabelled."""
FloorAt = Callable[[float], float]
"""Function from a threshold to the lowest threshold that can be tested on the samples of its policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdTest:
    """Test result of one threshold."""

    tau: float
    answered: int
    wrong: float
    """Number of wrong answers, or the sum of losses if they are not 0 or 1."""
    coverage: float
    """Share of answered problems."""
    upper_bound: float
    """Upper confidence bound of the risk at this threshold, at the level of its test: delta / 4, or delta in
    ``certify_smallest``."""
    p_value: float
    certified: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """Result of a certification."""

    max_error: float
    """alpha"""
    confidence: float
    """1 - delta"""
    certified: bool
    tau: float | None
    """Lowest confidence at which to answer. None if nothing is certified."""
    problems: int
    """Number of calibration problems."""
    answered: int
    wrong: float
    coverage: float
    upper_bound: float | None
    base_error: float
    """Risk if every problem is answered."""
    max_coverage: float
    """Highest coverage that a rule with this guarantee can have if ``base_error`` is the true risk."""
    more_problems: int | None
    """Estimated number of further labelled problems that would certify some coverage. None if already certified, or if
    ``MAX_PROBLEMS`` would not suffice."""
    smallest_error: float | None
    """Smallest ``max_error`` that could be certified on these problems. None if there is none below 1."""
    table: tuple[ThresholdTest, ...]

    @property
    def certified_thresholds(self) -> list[float]:
        """Every certified threshold, strict to lenient.

        With probability ``confidence`` the guarantee is valid for all of them at once. It does not cover thresholds
        between them.
        """
        return [row.tau for row in self.table if row.certified]


def certify(
    at: AtThreshold,
    thresholds: Floats,
    *,
    max_error: float,
    confidence: float,
    binary: bool = True,
    floor_at: FloorAt = lambda tau: -math.inf,
) -> Guarantee:
    """Find the lowest threshold with the guarantee.

    Args:
        at: calibration problems by threshold. Losses are 1 for a wrong answer and 0 for a right one, or violation
            scores.
        thresholds: values whose quantiles are the tested thresholds. They may depend on confidences but not on labels.
        max_error: error to guarantee (alpha), a mean loss among answered problems.
        confidence: probability with which the guarantee holds (1 - delta).
        binary: whether losses are 0 or 1.
        floor_at: floor of each threshold. Thresholds below their floor are not tested. Floors may depend on confidences
            but not on labels.

    Raises:
        ConfigError: no problem is labelled.
    """
    problems, delta = _Problems(at, binary=binary), 1 - confidence
    sequences = _sequences(thresholds, problems.starts, floor_at)
    tested = _test(sequences, problems, alpha=max_error, delta=delta)
    is_certified = any(row.certified for row in tested)
    return _guarantee(
        tested,
        problems,
        max_error=max_error,
        confidence=confidence,
        more_problems=None if is_certified else _more_problems(tested, problems, max_error, delta),
        # A sequence has a certified threshold if and only if its first one passes.
        smallest_error=_smallest_alpha(problems, [sequence[0] for sequence in sequences], delta / len(problems.starts)),
    )


def certify_smallest(
    at: AtThreshold, *, min_coverage: float, confidence: float, binary: bool = True, floor_at: FloorAt
) -> Guarantee:
    """Find the smallest error that can be guaranteed at a given coverage.

    The threshold is the highest one that answers ``min_coverage`` of the problems. Labels choose only the error, by
    fixed-sequence testing over a grid from large to small (see the module docstring). The other arguments and the
    errors are those of ``certify``.

    Args:
        min_coverage: minimum share of answered problems, in (0, 1].
    """
    problems, level = _Problems(at, binary=binary), 1 - confidence
    place = math.ceil(round(min_coverage * len(problems.base_losses), 9)) - 1
    tau = float(np.sort(problems.base_confidence)[::-1][place])
    is_testable = math.isfinite(tau) and tau >= floor_at(tau)
    max_error = _smallest_alpha(problems, [tau] if is_testable else [], level)
    return _guarantee(
        [] if max_error is None else [_row(tau, problems, alpha=max_error, level=level)],
        problems,
        max_error=(ERRORS - 1) / ERRORS if max_error is None else max_error,
        confidence=confidence,
        more_problems=None,
        smallest_error=max_error,
    )


def _guarantee(
    tested: Sequence[ThresholdTest],
    problems: "_Problems",
    *,
    max_error: float,
    confidence: float,
    more_problems: int | None,
    smallest_error: float | None,
) -> Guarantee:
    best = min((row for row in tested if row.certified), key=lambda row: row.tau, default=None)
    base_error = float(problems.base_losses.mean())
    return Guarantee(
        max_error=max_error,
        confidence=confidence,
        certified=best is not None,
        tau=None if best is None else best.tau,
        problems=len(problems.base_losses),
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

    def __init__(self, at: AtThreshold, *, binary: bool) -> None:
        confidence_of, losses = at(-math.inf)
        labelled = ~np.isnan(losses)
        if not labelled.any():
            raise ConfigError("a guarantee needs labelled problems, got none; label some, or leave out max_error")
        self.base_confidence, self.base_losses = confidence_of[labelled], losses[labelled]
        """Confidences and losses of the labelled problems if every problem is answered."""
        self.starts = STARTS if binary else BOUNDED_STARTS
        self._at, self._binary = at, binary
        self._losses: dict[float, Floats] = {}
        self._num_labelled: dict[float, int] = {}

    def losses(self, tau: float) -> Floats:
        """Losses of the problems answered at a threshold, in a random order that depends only on P.

        In order of confidence, low losses would come first, and the bets would not be fair.
        """
        if tau not in self._losses:
            confidence_of, losses = self._at(tau)
            order = np.argsort(np.random.default_rng(len(losses)).permutation(len(losses)))
            labelled = ~np.isnan(losses)
            self._num_labelled[tau] = int(labelled.sum())
            self._losses[tau] = losses[order][(labelled & (confidence_of >= tau))[order]]
        return self._losses[tau]

    def coverage(self, tau: float) -> float:
        """Share of the labelled problems that are answered at a threshold."""
        answered = len(self.losses(tau))
        return answered / self._num_labelled[tau] if answered else 0.0

    def p_value(self, tau: float, alpha: float, *, factor: float = 1.0) -> float:
        """p-value of "the risk is above alpha", scaled to ``factor`` times as many problems with the same losses."""
        losses = self.losses(tau)
        more = round(factor * len(losses))
        if not self._binary:
            return betting_p_value(np.resize(losses, more), alpha)
        return risk_p_value(math.fsum(losses) * (more / len(losses) if len(losses) else 1.0), more, alpha)

    def upper_bound(self, tau: float, level: float) -> float:
        """Largest risk that is not rejected at this level."""
        losses = self.losses(tau)
        if self._binary:
            return risk_upper_bound(math.fsum(losses), len(losses), level)
        return betting_upper_bound(losses, level)


def _sequences(confidence_of: Floats, starts: Sequence[float], floor_at: FloorAt) -> list[list[float]]:
    """Thresholds of each sequence, strict to lenient: quantiles of the confidences at or above their floor."""
    usable = np.sort(confidence_of[np.isfinite(confidence_of)])[::-1]
    if not len(usable):
        return []
    sequences = []
    for start in starts:
        coverages = np.arange(start, 1 + STEP / 2, STEP)
        places = np.minimum(np.ceil(coverages * len(confidence_of)).astype(int), len(usable)) - 1
        sequences.append(
            list(dict.fromkeys(float(usable[place]) for place in places if usable[place] >= floor_at(usable[place])))
        )
    return [sequence for sequence in sequences if sequence]


def _test(
    sequences: Sequence[Sequence[float]], problems: _Problems, *, alpha: float, delta: float
) -> list[ThresholdTest]:
    """Test each sequence up to the first threshold that does not pass. Each threshold is listed once."""
    level, rows = delta / len(problems.starts), dict[float, ThresholdTest]()
    for sequence in sequences:
        for tau in sequence:
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


def _more_problems(tested: Sequence[ThresholdTest], problems: _Problems, alpha: float, delta: float) -> int | None:
    """Number of further problems that would certify the most promising threshold, with unchanged losses."""
    level, count, needed = delta / len(problems.starts), len(problems.base_losses), []
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


def _smallest_alpha(problems: _Problems, taus: Sequence[float], level: float) -> float | None:
    """Smallest alpha of the grid that passes at any of these thresholds, or None.

    A threshold that passes at alpha passes above it, so the search is by bisection.
    """

    def passes(alpha: float) -> bool:
        return any(problems.p_value(tau, alpha) <= level for tau in taus)

    low, high = 0, ERRORS - 1
    if not passes(high / ERRORS):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle / ERRORS) else (middle, high)
    return high / ERRORS
