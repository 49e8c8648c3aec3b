"""Guarantee on the error rate of returned answers, by learn-then-test (arXiv 2110.01052).

With probability at least 1 - delta over the calibration problems, the share of wrong answers among those returned is at
most alpha, for problems exchangeable with the calibration problems.

For a threshold tau, n(tau) calibration problems are answered (confidence >= tau) and w(tau) of these answers are wrong.
Given n, the number of wrong ones is binomial with the true risk, so

    p(tau) = P(Bin(n(tau), alpha) <= w(tau))

is a p-value of "the risk at tau is above alpha". Losses in [0, 1], such as violation scores, are tested by betting
(``risk_bounds.betting_p_value``), which uses their small variance. Several thresholds are tested without inflating the
error, by fixed-sequence testing: four sequences of thresholds start at different coverages (``STARTS``), each is tested
from strict to lenient at level delta / 4, and ends at the first threshold that does not pass. Thresholds are chosen
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
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from raydebm.decision.guarantee.risk_bounds import betting_p_value, betting_upper_bound, risk_p_value, risk_upper_bound
from raydebm.decision.table import Floats
from raydebm.errors import ConfigError

STARTS: tuple[float, ...] = (0.10, 0.25, 0.40, 0.60)
"""Coverages at which the sequences of thresholds start."""
BOUNDED_STARTS: tuple[float, ...] = (0.25, 0.50, 0.75, 0.90)
"""The same if losses are not 0 or 1: a test by betting needs more problems, even if their losses are small."""
STEP = 0.01
"""Difference in coverage between neighbouring thresholds of a sequence."""
MAX_PROBLEMS = 100_000
ERRORS = 1000
"""Resolution of the smallest error: 1 / ERRORS."""


AtThreshold = Callable[[float], tuple[Floats, Floats]]
"""(P,) confidences and (P,) losses of the final answers under the policy of a threshold. NaN if unlabelled."""
FloorAt = Callable[[float], float]
"""Function of a threshold: the lowest threshold that can be tested on the samples of its policy."""


def no_floor(tau: float) -> float:
    """Floor that excludes no threshold."""
    return -math.inf


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ByThreshold:
    """Problems whose samples depend on the threshold."""

    at: AtThreshold
    thresholds: Floats
    """Values whose quantiles are the tested thresholds. May depend on confidences and never on labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdTest:
    """Test result of one threshold."""

    tau: float
    answered: int
    wrong: float
    """Number of wrong answers, or sum of losses that are not 0 or 1."""
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
    """Lowest confidence to answer at. None if nothing is certified."""
    problems: int
    """Number of calibration problems."""
    answered: int
    wrong: float
    coverage: float
    upper_bound: float | None
    base_error: float
    """Risk if every problem is answered."""
    max_coverage: float
    """Highest possible coverage of a rule with this guarantee, if ``base_error`` is the true risk."""
    more_problems: int | None
    """Estimated number of further labelled problems that would certify some coverage. None if certified or out of
    reach."""
    smallest_error: float | None
    """Smallest ``max_error`` that the first threshold of any sequence would pass with these problems."""
    table: tuple[ThresholdTest, ...]

    @property
    def certified_thresholds(self) -> list[float]:
        """Every certified threshold, strict to lenient.

        With probability ``confidence`` the guarantee is valid for all of them at once. Thresholds between them are not
        tested.
        """
        return [row.tau for row in self.table if row.certified]

    def to_json(self) -> dict[str, Any]:
        """The guarantee with its table as JSON values, as in a policy file."""
        return {**asdict(self), "table": [asdict(row) for row in self.table]}

    def summary(self) -> dict[str, Any]:
        """Fields reported with an answer."""
        return {
            "max_error": self.max_error,
            "confidence": self.confidence,
            "certified": self.certified,
            "problems": self.problems,
        }


def check_guarantee(max_error: float, confidence: float) -> None:
    """Check that a guarantee is meaningful.

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
    """Find the lowest threshold with the guarantee.

    Args:
        confidence_of: confidence of each calibration problem's final answer, shape (P,). -inf without one.
        losses: 1 for a wrong answer and 0 for a right one, or a violation score, shape (P,).
        max_error: error to guarantee (alpha), a mean loss among answered problems.
        confidence: probability with which the guarantee holds (1 - delta).
        binary: whether losses are 0 or 1.
        floor_at: floor of each threshold. Thresholds below their floor are not tested. May depend on confidences and
            never on labels.
        by_threshold: confidences and losses by threshold, if the threshold changes the samples. The first two arguments
            then apply to answering every problem.

    Raises:
        ConfigError: ``max_error`` or ``confidence`` is not strictly between 0 and 1, there are no problems, or a value
            is NaN.
    """
    check_guarantee(max_error, confidence)
    problems = _Problems(confidence_of, losses, binary=binary, by_threshold=by_threshold)
    thresholds, delta = confidence_of if by_threshold is None else by_threshold.thresholds, 1 - confidence
    sequences = _sequences(thresholds, problems.starts, floor_at)
    tested = _test(sequences, problems, alpha=max_error, delta=delta)
    best = min((row for row in tested if row.certified), key=lambda row: row.tau, default=None)
    return _guarantee(
        best,
        tested,
        losses,
        max_error=max_error,
        confidence=confidence,
        more_problems=None if best is not None else _more_problems(tested, problems, max_error, delta, len(losses)),
        smallest_error=_smallest_error(sequences, problems, delta),
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
    """Find the smallest error that can be guaranteed at a given coverage.

    The threshold is the highest one that answers ``min_coverage`` of the problems. Labels choose only the error, by
    fixed-sequence testing over a grid from large to small (see the module docstring).

    Args:
        confidence_of: see ``certify``.
        losses: see ``certify``.
        min_coverage: minimum share of answered problems, in (0, 1].
        confidence: 1 - delta.
        binary: whether losses are 0 or 1.
        floor_at: see ``certify``.
        by_threshold: see ``certify``.

    Raises:
        ConfigError: see ``certify``, or ``min_coverage`` is not in (0, 1].
    """
    check_guarantee(0.5, confidence)
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
        """Raises ConfigError if there are no problems, or a value is NaN."""
        if len(losses) == 0:
            raise ConfigError("a guarantee needs labelled problems, got none; label some, or leave out max_error")
        if np.isnan(confidence_of).any() or np.isnan(losses).any():
            raise ConfigError(
                "a guarantee needs a confidence and a label for every problem; leave unlabelled problems out"
            )
        self.starts = STARTS if binary else BOUNDED_STARTS
        self._at = (lambda _: (confidence_of, losses)) if by_threshold is None else by_threshold.at
        self._binary = binary
        self._losses: dict[float, Floats] = {}
        self._num_labelled: dict[float, int] = {}

    def losses(self, tau: float) -> Floats:
        """Losses of the problems answered at a threshold, in a random order that depends only on P.

        Ordered by confidence, the low losses would be first, and a bet on them would not be fair.
        """
        if tau not in self._losses:
            confidence_of, losses = self._at(tau)
            order = np.argsort(np.random.default_rng(len(losses)).permutation(len(losses)))
            labelled = ~np.isnan(losses)
            self._num_labelled[tau] = int(labelled.sum())
            self._losses[tau] = losses[order][(labelled & (confidence_of >= tau))[order]]
        return self._losses[tau]

    def coverage(self, tau: float) -> float:
        """Share of the labelled problems that are answered."""
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
        """Largest risk that the answered problems do not reject at this level."""
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


def _more_problems(
    tested: Sequence[ThresholdTest], problems: _Problems, alpha: float, delta: float, count: int
) -> int | None:
    """Number of further problems that would certify the most promising threshold, with unchanged losses."""
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


def _smallest_error(sequences: Sequence[Sequence[float]], problems: _Problems, delta: float) -> float | None:
    """Smallest alpha, to 1 / ERRORS, that is certified at any threshold. A sequence has a certified threshold if and
    only if its first one passes."""
    return _smallest_alpha(problems, [sequence[0] for sequence in sequences], delta / len(problems.starts))


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
