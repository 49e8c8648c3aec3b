"""The predictive distribution of the answers that have not been sampled yet.

The answers of one problem follow a Chinese restaurant process: after votes n_1, ..., n_K the next sample repeats answer
j with probability n_j / (n + alpha) and is a new answer with probability alpha / (n + alpha) (Blackwell and MacQueen,
1973). The concentration alpha has a uniform prior on ``GRID``, which the votes update by Ewens' formula,
p(votes | alpha) proportional to alpha^K Gamma(alpha) / Gamma(alpha + n).

Probabilities over the next m samples are exact. Poissonised, the repetitions of answer j are negative binomial with
shape n_j and the number of new answers with e samples is Poisson with mean alpha q^e / e, all independent; conditioned
on the total they are the process above, for any q. Coefficients of the generating functions come from a discrete
Fourier transform on a circle whose radius keeps the aliasing below 1e-12 (Abate and Whitt, 1992).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, gammaln

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

GRID = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
LEAST_WEIGHT = 1e-4
"""Concentrations with a smaller posterior weight are left out; no probability changes by more than their sum."""
ALIASING_DIGITS = 12
ROUNDING = 1e-9
"""Equal scores that were computed differently must compare as equal."""


def concentrations(votes: Sequence[int], grid: Sequence[float] = GRID) -> tuple[tuple[float, float], ...]:
    """Pairs (alpha, posterior weight) after these votes per answer, by Ewens' sampling formula."""
    alpha, total = np.array(grid), sum(votes)
    log_weights = len(votes) * np.log(alpha) + gammaln(alpha) - gammaln(alpha + total)
    weights = np.exp(log_weights - log_weights.max())
    pairs = [pair for pair in zip(grid, (weights / weights.sum()).tolist(), strict=True) if pair[1] >= LEAST_WEIGHT]
    whole = math.fsum(weight for _, weight in pairs)
    return tuple((value, weight / whole) for value, weight in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Votes for the answers of one problem so far, and how much a vote for each counts."""

    votes: tuple[int, ...]
    """Votes per answer, > 0; the leader first."""
    rates: tuple[float, ...]
    """Worth of a vote, >= 0, per answer: an answer's score is its votes times its rate. 1 for a plain vote."""
    new_rate: float
    """Worth of a vote for an answer that has not been given yet."""
    unanswered: int
    """Samples without an answer; they recur and count for nothing."""

    @property
    def total(self) -> int:
        """Number of samples so far, with and without an answer."""
        return sum(self.votes) + self.unanswered


@lru_cache(maxsize=65536)
def lead_probabilities(standing: Standing, *, remaining: int, alphas: tuple[float, ...]) -> tuple[float, ...]:
    """Probability, by concentration, that the leader's score is above every other's after ``remaining`` more samples.

    Exact; a tie at the end counts against the leader. Cached, because the same few votes occur again and again.
    """
    if not standing.votes:
        return (0.0,) * len(alphas)
    if _cannot_be_overtaken(standing, remaining):
        return (1.0,) * len(alphas)
    alpha = np.array(alphas)
    circle = _circle(remaining)
    mass = standing.total + alpha
    tilt = _tilt(standing.total, remaining, alphas)
    counts = np.arange(remaining + 1)
    final_scores = standing.rates[0] * (standing.votes[0] + counts) * (1 - ROUNDING)

    def repeated(votes: int) -> Floats:
        return _repetitions(votes, standing.total, remaining, alphas)

    spectrum = np.ones((1, 1, 1), dtype=np.complex128)
    if standing.unanswered:
        spectrum = circle.spectrum(repeated(standing.unanswered))[:, -1:]
    rivals = Counter(zip(standing.votes[1:], standing.rates[1:], strict=True))
    for (votes, rate), number in rivals.items():
        allowed = np.searchsorted(rate * (votes + counts), final_scores)
        spectrum = spectrum * circle.spectrum(repeated(votes))[:, allowed] ** number
    new_terms = alpha[:, None] * np.divide(
        tilt[:, None] ** counts, counts, where=counts > 0, out=np.zeros((len(alpha), remaining + 1))
    )
    allowed = np.searchsorted(standing.new_rate * counts, final_scores)
    new_answers = np.exp(circle.spectrum(new_terms)[:, allowed] + (alpha * np.log1p(-tilt))[:, None, None])
    others = np.einsum("aif,if->ai", spectrum * new_answers, circle.inverse).real
    joint = (repeated(standing.votes[0]) * others).sum(axis=1)
    whole = _negative_binomial(mass, tilt, remaining)[:, remaining]
    return tuple(np.clip(joint / whole, 0.0, 1.0).tolist())


def _cannot_be_overtaken(standing: Standing, remaining: int) -> bool:
    leader = standing.rates[0] * standing.votes[0] * (1 - ROUNDING)
    rivals = zip(standing.rates[1:], standing.votes[1:], strict=True)
    return leader > standing.new_rate * remaining and all(leader > rate * (n + remaining) for rate, n in rivals)


def _tilt(total: int, remaining: int, alphas: tuple[float, ...]) -> Floats:
    """(A,): the q of the generating functions, which keeps the aliasing small."""
    mass = total + np.array(alphas)
    q: Floats = remaining / (remaining + mass) * 10 ** (-ALIASING_DIGITS / _circle(remaining).length)
    return q


@lru_cache(maxsize=1024)
def _repetitions(votes: int, total: int, remaining: int, alphas: tuple[float, ...]) -> Floats:
    """(A, remaining + 1): how often an answer with these votes is repeated, Poissonised. Cached; do not change it."""
    return _negative_binomial(votes, _tilt(total, remaining, alphas), remaining)


def _negative_binomial(shape: float | Floats, q: Floats, most: int) -> Floats:
    """(A, most + 1): P(0), ..., P(most) of negative binomials of positive shape, one for all rows or one per row."""
    if not most:
        return np.ones((len(q), 1))
    counts = np.arange(most + 1)
    shapes, q_column = np.broadcast_to(np.asarray(shape, dtype=np.float64), q.shape)[:, None], q[:, None]
    log_terms = gammaln(shapes + counts) - gammaln(shapes) - gammaln(counts + 1)
    terms: Floats = np.exp(log_terms + shapes * np.log1p(-q_column) + counts * np.log(q_column))
    return terms


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Circle:
    """Points of the unit circle at which generating functions of degree ``remaining`` are evaluated.

    F = length / 2 + 1 frequencies: the other half of a real signal's spectrum is the conjugate of this one.
    """

    length: int
    powers: Complexes
    """(remaining + 1, F): each point to each power."""
    inverse: Complexes
    """(remaining + 1, F): row i times a spectrum, summed, is its coefficient of degree ``remaining - i``."""

    def spectrum(self, terms: Floats) -> Complexes:
        """(A, m + 1) -> (A, m + 2, F): of the first 0, 1, ..., m + 1 terms alone."""
        rows, count = terms.shape
        spectra = np.zeros((rows, count + 1, self.powers.shape[1]), dtype=np.complex128)
        np.cumsum(terms[:, :, None] * self.powers, axis=1, out=spectra[:, 1:])
        return spectra


@lru_cache(maxsize=128)
def _circle(remaining: int) -> _Circle:
    length = 4 * (remaining + 1)
    counts, frequencies = np.arange(remaining + 1), np.arange(length // 2 + 1)
    powers = np.exp(-2j * math.pi * np.outer(counts, frequencies) / length)
    # Frequencies in between count twice, for themselves and their conjugates.
    twice = np.where((frequencies > 0) & (frequencies < length // 2), 2.0, 1.0)
    inverse = powers.conj()[::-1] * twice / length
    return _Circle(length=length, powers=powers, inverse=inverse)


def reach_probability(
    probabilities: Sequence[float], *, none: float, strength: float, remaining: int, threshold: float
) -> float:
    """Probability that some answer has at least the probability ``threshold`` after ``remaining`` more samples.

    Beliefs are a Dirichlet: p of strength s becomes (p s + x) / (s + m) when x of the m samples agree, x
    beta-binomial; new answers have the size intensity (none s) theta^-1 (1 - theta)^(s - 1). Each answer's chance and
    the expected number of new answers that get so far are added, which is exact for a threshold above 1/2 (at most one
    answer can be there) and an upper bound below.

    Args:
        probabilities: probability of each answer.
        none: probability of answers that have not been given.
        strength: pseudo-samples behind the probabilities, > 0.
        remaining: samples to come.
        threshold: probability to reach.
    """
    counts = np.arange(remaining + 1)
    is_enough = threshold * (strength + remaining) - ROUNDING
    held = np.array(probabilities) * strength
    reached = _beta_binomial(held, strength - held, remaining)[held[:, None] + counts >= is_enough].sum()
    sizes = counts[1:]
    if none > 0 and remaining:
        log_choose = gammaln(remaining + 1) - gammaln(sizes + 1) - gammaln(remaining - sizes + 1)
        new = none * strength * np.exp(log_choose + betaln(sizes, remaining - sizes + strength))
        reached = reached + new[sizes >= is_enough].sum()
    return min(float(reached), 1.0)


def _beta_binomial(a: Floats, b: Floats, n: int) -> Floats:
    """(J,), (J,) -> (J, n + 1): P(0), ..., P(n); where a or b is 0, everything is at one end."""
    counts = np.arange(n + 1)
    certain = (a <= ROUNDING) | (b <= ROUNDING)
    a_column, b_column = (np.where(certain, 1.0, side)[:, None] for side in (a, b))
    log_choose = gammaln(n + 1) - gammaln(counts + 1) - gammaln(n - counts + 1)
    log_terms = log_choose + betaln(a_column + counts, b_column + n - counts) - betaln(a_column, b_column)
    ends = counts[None, :] == np.where(a <= ROUNDING, 0, n)[:, None]
    terms: Floats = np.where(certain[:, None], ends.astype(np.float64), np.exp(log_terms))
    return terms
