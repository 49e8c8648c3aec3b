"""Predictive distribution of the answers that have not been sampled yet.

The answers to one problem follow a Chinese restaurant process: after votes n_1, ..., n_K the next sample repeats answer
j with probability n_j / (n + alpha) and is a new answer with probability alpha / (n + alpha) (Blackwell and MacQueen,
1973). The concentration alpha has a uniform prior on ``GRID``, which the votes update by Ewens' formula, p(votes |
alpha) proportional to alpha^K Gamma(alpha) / Gamma(alpha + n).

Probabilities over the next m samples are exact. Poissonised, the repetitions of answer j are negative binomial with
shape n_j and the number of new answers with e samples is Poisson with mean alpha q^e / e, all independent. Conditioned
on the total, they are the process above, for any q. Coefficients of the generating functions are computed by a discrete
Fourier transform on a circle whose radius limits the aliasing to 1e-12 (Abate and Whitt, 1992).
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
"""Smallest posterior weight of a concentration that is kept. No probability changes by more than the sum of the dropped
weights."""
ALIASING_DIGITS = 12
ROUNDING = 1e-9
"""Tolerance for equal scores that were computed differently."""


def concentrations(votes: Sequence[int], grid: Sequence[float] = GRID) -> tuple[tuple[float, float], ...]:
    """Concentrations with their posterior weights, given the votes per answer, by Ewens' sampling formula."""
    alpha, total = np.array(grid), sum(votes)
    log_weights = len(votes) * np.log(alpha) + gammaln(alpha) - gammaln(alpha + total)
    weights = np.exp(log_weights - log_weights.max())
    pairs = [pair for pair in zip(grid, (weights / weights.sum()).tolist(), strict=True) if pair[1] >= LEAST_WEIGHT]
    whole = math.fsum(weight for _, weight in pairs)
    return tuple((value, weight / whole) for value, weight in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Votes for the answers to one problem so far, with the weight of a vote for each."""

    votes: tuple[int, ...]
    """Votes per answer, > 0; the leader first."""
    rates: tuple[float, ...]
    """Weight of a vote for each answer, >= 0. An answer's score is its votes times its rate; 1 for a plain vote."""
    new_rate: float
    """Weight of a vote for a new answer."""
    unanswered: int
    """Samples without an answer. They recur like votes, with weight 0."""

    @property
    def total(self) -> int:
        """Number of samples so far, with and without an answer."""
        return sum(self.votes) + self.unanswered


@lru_cache(maxsize=65536)
def lead_probabilities(standing: Standing, *, remaining: int, alphas: tuple[float, ...]) -> tuple[float, ...]:
    """Probability by concentration that the leader still has the highest score after ``remaining`` more samples.

    Exact. A tie at the end counts against the leader. Cached, because the same votes recur often.
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
    """The q of the generating functions at which the aliasing is limited, shape (A,)."""
    mass = total + np.array(alphas)
    q: Floats = remaining / (remaining + mass) * 10 ** (-ALIASING_DIGITS / _circle(remaining).length)
    return q


@lru_cache(maxsize=1024)
def _repetitions(votes: int, total: int, remaining: int, alphas: tuple[float, ...]) -> Floats:
    """Distribution of repetitions of an answer with these votes, Poissonised. Shape (A, remaining + 1). Cached; do not
    modify."""
    return _negative_binomial(votes, _tilt(total, remaining, alphas), remaining)


def _negative_binomial(shape: float | Floats, q: Floats, most: int) -> Floats:
    """P(0), ..., P(most) of negative binomials of positive shape, one shape for all rows or one per row. Shape (A, most
    + 1)."""
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

    There are F = length / 2 + 1 frequencies: the other half of a real signal's spectrum is the conjugate of this one.
    """

    length: int
    powers: Complexes
    """Each point to each power, shape (remaining + 1, F)."""
    inverse: Complexes
    """Inverse transform, shape (remaining + 1, F). The sum of row i times a spectrum is the coefficient of degree
    ``remaining - i``."""

    def spectrum(self, terms: Floats) -> Complexes:
        """Spectra of the first 0, 1, ..., m + 1 terms, shapes (A, m + 1) -> (A, m + 2, F)."""
        rows, count = terms.shape
        spectra = np.zeros((rows, count + 1, self.powers.shape[1]), dtype=np.complex128)
        np.cumsum(terms[:, :, None] * self.powers, axis=1, out=spectra[:, 1:])
        return spectra


@lru_cache(maxsize=128)
def _circle(remaining: int) -> _Circle:
    length = 4 * (remaining + 1)
    counts, frequencies = np.arange(remaining + 1), np.arange(length // 2 + 1)
    powers = np.exp(-2j * math.pi * np.outer(counts, frequencies) / length)
    # All frequencies except the first and the last count twice, for themselves and their conjugates.
    twice = np.where((frequencies > 0) & (frequencies < length // 2), 2.0, 1.0)
    inverse = powers.conj()[::-1] * twice / length
    return _Circle(length=length, powers=powers, inverse=inverse)


def reach_probability(
    probabilities: Sequence[float], *, none: float, strength: float, remaining: int, threshold: float
) -> float:
    """Probability that some answer has probability ``threshold`` or more after ``remaining`` more samples.

    The probabilities are a Dirichlet distribution of strength s: when x of m samples give an answer, its p becomes
    (p s + x) / (s + m), and x is beta-binomial. New answers have the size intensity
    (none s) theta^-1 (1 - theta)^(s - 1). The result is the sum of each answer's probability and the expected number of
    new answers above the threshold: exact for a threshold above 1/2, which at most one answer can reach, and an upper
    bound below.

    Args:
        probabilities: probability of each answer.
        none: probability of answers that have not been sampled.
        strength: pseudo-samples behind the probabilities, > 0.
        remaining: number of samples to come.
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
    """P(0), ..., P(n), shapes (J,), (J,) -> (J, n + 1). If a or b is 0, all mass is at one end."""
    counts = np.arange(n + 1)
    certain = (a <= ROUNDING) | (b <= ROUNDING)
    a_column, b_column = (np.where(certain, 1.0, side)[:, None] for side in (a, b))
    log_choose = gammaln(n + 1) - gammaln(counts + 1) - gammaln(n - counts + 1)
    log_terms = log_choose + betaln(a_column + counts, b_column + n - counts) - betaln(a_column, b_column)
    ends = counts[None, :] == np.where(a <= ROUNDING, 0, n)[:, None]
    terms: Floats = np.where(certain[:, None], ends.astype(np.float64), np.exp(log_terms))
    return terms
