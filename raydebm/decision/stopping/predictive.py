"""The predictive distribution of the answers that have not been sampled yet.

The answers of one problem follow a Chinese restaurant process: after votes n_1, ..., n_K the next sample repeats answer
j with probability n_j / (n + alpha) and is a new answer with probability alpha / (n + alpha) (Blackwell and MacQueen,
1973). A small concentration alpha means that the model nearly always says the same, a large one that it guesses. It
differs from problem to problem, so it has a prior on a grid, and the partition seen so far updates that prior by Ewens'
formula, p(partition | alpha) proportional to alpha^K Gamma(alpha) / Gamma(alpha + n).

Probabilities over the next m samples are exact. Poissonised, the repetitions of answer j are negative binomial with
shape n_j and the number of new answers with e samples is Poisson with mean alpha q^e / e, all independent; conditioned
on the total they are the process above, for any q. Coefficients of the generating functions come from a discrete
Fourier transform on a circle whose radius keeps the aliasing below 1e-12 (Abate and Whitt, 1992).
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, gammaln

from raydebm.errors import ConfigError

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

GRID = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
ALIASING_DIGITS = 12
_ROUNDING = 1e-9
"""Equal scores that were computed differently must compare as equal."""


@dataclass(frozen=True, slots=True)
class ConcentrationPrior:
    """Prior over the concentration alpha of a problem's answers.

    Raises:
        ConfigError: no value, a value that is not above 0, or weights that are not a distribution over them.
    """

    values: tuple[float, ...] = GRID
    weights: tuple[float, ...] = (1 / len(GRID),) * len(GRID)

    def __post_init__(self) -> None:
        if not self.values or not all(math.isfinite(value) and value > 0 for value in self.values):
            raise ConfigError(f"concentrations must be finite numbers above 0, got {self.values}")
        if len(self.weights) != len(self.values) or not all(weight >= 0 for weight in self.weights):
            raise ConfigError(
                f"a concentration prior needs one weight >= 0 per value, got {len(self.weights)} weights "
                f"for {len(self.values)} values: {self.weights}"
            )
        if not math.isclose(math.fsum(self.weights), 1.0, abs_tol=1e-6):
            raise ConfigError(f"weights of a concentration prior must sum to 1, got {math.fsum(self.weights):g}")

    def updated(self, votes: Sequence[float]) -> "ConcentrationPrior":
        """The posterior after these votes per answer (Ewens' sampling formula)."""
        alpha = np.array(self.values)
        with np.errstate(divide="ignore"):
            log_weights = np.log(np.array(self.weights)) + _log_partition(alpha, votes)
        weights = np.exp(log_weights - log_weights.max())
        return ConcentrationPrior(self.values, tuple((weights / weights.sum()).tolist()))


def _log_partition(alpha: Floats, votes: Sequence[float]) -> Floats:
    """Ewens' formula up to a constant that does not depend on alpha; shape of ``alpha``."""
    total = math.fsum(votes)
    log_likelihood: Floats = len(votes) * np.log(alpha) + gammaln(alpha) - gammaln(alpha + total)
    return log_likelihood


def fit_concentration_prior(
    pools: Iterable[Sequence[float]], *, values: Sequence[float] = GRID, num_iterations: int = 200
) -> ConcentrationPrior:
    """Maximum-likelihood weights of the grid, by expectation maximisation.

    Args:
        pools: votes per answer of each recorded problem; problems without an answer are left out.
        values: the grid of concentrations.
        num_iterations: of expectation maximisation, which never lowers the likelihood.

    Raises:
        ConfigError: no pool has an answer.
    """
    alpha = np.array(values)
    rows = [_log_partition(alpha, votes) for votes in pools if len(votes)]
    if not rows:
        raise ConfigError("fitting the concentration of answers needs at least one recorded problem with an answer")
    likelihood = np.exp(np.array([row - row.max() for row in rows]))
    weights = np.full(len(alpha), 1 / len(alpha))
    for _ in range(num_iterations):
        shares = likelihood * weights
        weights = (shares / shares.sum(axis=1, keepdims=True)).mean(axis=0)
    return ConcentrationPrior(tuple(values), tuple((weights / weights.sum()).tolist()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How the answers of one problem stand: votes so far, and what a vote for each counts."""

    votes: tuple[float, ...]
    """Votes per answer, > 0; the leader first."""
    rates: tuple[float, ...]
    """What a vote counts, >= 0, per answer: an answer's score is its votes times its rate. 1 for a plain vote."""
    new_rate: float
    """What a vote for an answer that has not been given yet will count."""
    unanswered: float
    """Samples without an answer; they recur and count for nothing."""

    @property
    def total(self) -> float:
        """Number of samples so far, with and without an answer."""
        return math.fsum(self.votes) + self.unanswered


def lead_probability(standing: Standing, *, remaining: int, alpha: float) -> float:
    """Probability that the leader's score is above every other's after ``remaining`` more samples.

    Exact under the process at this alpha. A tie at the end counts against the leader.
    """
    return lead_probabilities(standing, remaining=remaining, alphas=(alpha,))[0]


@lru_cache(maxsize=65536)
def lead_probabilities(standing: Standing, *, remaining: int, alphas: tuple[float, ...]) -> tuple[float, ...]:
    """``lead_probability`` at each of these concentrations.

    Cached, because the same few votes occur again and again, whatever the prior over the concentrations is.
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
    final_scores = standing.rates[0] * (standing.votes[0] + counts) * (1 - _ROUNDING)

    def repeated(votes: float) -> Floats:
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


def _tilt(total: float, remaining: int, alphas: tuple[float, ...]) -> Floats:
    """(A,): the q of the generating functions, which keeps the aliasing small."""
    mass = total + np.array(alphas)
    q: Floats = remaining / (remaining + mass) * 10 ** (-ALIASING_DIGITS / _circle(remaining).length)
    return q


@lru_cache(maxsize=1024)
def _repetitions(votes: float, total: float, remaining: int, alphas: tuple[float, ...]) -> Floats:
    """(A, remaining + 1): how often an answer with these votes is repeated, Poissonised. Cached, because few numbers of
    votes occur among many standings; not to be changed."""
    return _negative_binomial(votes, _tilt(total, remaining, alphas), remaining)


def _cannot_be_overtaken(standing: Standing, remaining: int) -> bool:
    leader = standing.rates[0] * standing.votes[0] * (1 - _ROUNDING)
    rivals = zip(standing.rates[1:], standing.votes[1:], strict=True)
    return leader > standing.new_rate * remaining and all(leader > rate * (n + remaining) for rate, n in rivals)


def _negative_binomial(shape: float | Floats, q: Floats, most: int) -> Floats:
    """(A, most + 1): P(0), ..., P(most) of negative binomials; all at 0 where the shape or q is 0.

    Args:
        shape: one for all rows, or one per row.
        q: (A,) in [0, 1).
        most: the largest count.
    """
    counts = np.arange(most + 1)
    shapes = np.broadcast_to(np.asarray(shape, dtype=np.float64), q.shape)[:, None]
    nothing = (shapes <= 0) | (q[:, None] <= 0)
    shapes, q_column = np.where(nothing, 1.0, shapes), np.where(nothing, 0.5, q[:, None])
    log_terms = gammaln(shapes + counts) - gammaln(shapes) - gammaln(counts + 1)
    terms = np.exp(log_terms + shapes * np.log1p(-q_column) + counts * np.log(q_column))
    probabilities: Floats = np.where(nothing, counts == 0, terms)
    return probabilities


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
    # Frequencies in between stand for two, themselves and their conjugates.
    twice = np.where((frequencies > 0) & (frequencies < length // 2), 2.0, 1.0)
    inverse = powers.conj()[::-1] * twice / length
    return _Circle(length=length, powers=powers, inverse=inverse)


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteBelief:
    """Probabilities of the answers, seen as a Dirichlet with ``strength`` pseudo-samples."""

    probabilities: tuple[float, ...]
    """Per answer."""
    none: float
    """Probability of answers that have not been given."""
    strength: float
    """> 0; the number of samples plus alpha, so that the share of votes is the special case."""


def reach_probability(belief: VoteBelief, *, remaining: int, threshold: float) -> float:
    """Probability that some answer has at least this probability after ``remaining`` more samples.

    A belief p of strength s becomes (p s + x) / (s + m) when x of the m samples agree, x beta-binomial. Each answer's
    chance and the expected number of new answers that get so far are added, which is exact for a threshold above
    1/2 (at most one answer can be there) and an upper bound below.
    """
    strength, most = belief.strength, remaining
    needed = threshold * (strength + most) - _ROUNDING
    counts = np.arange(most + 1)
    held = np.array(belief.probabilities) * strength
    terms = _beta_binomial(held, strength - held, most)
    reached = held[:, None] + counts >= needed
    return min(float(terms[reached].sum() + _new_answers(belief, most)[counts >= needed].sum()), 1.0)


def expected_gain(belief: VoteBelief, *, num_samples: int) -> float:
    """Upper bound on how much ``num_samples`` more samples raise the probability of the best answer, on average.

    The knowledge gradient E[max_j p_j'] - max_j p_j of the Dirichlet belief (Frazier et al., 2008). The leader's own
    probability does not change on average, so the gain is E[(max over rivals - leader)+] <= the sum over rivals of
    E[(rival - leader)+], each exact; new answers are compared with the leader as it is.
    """
    if not belief.probabilities:
        return float(_new_answers(belief, num_samples) @ np.arange(num_samples + 1)) / (belief.strength + num_samples)
    strength = belief.strength
    held = np.sort(np.array(belief.probabilities))[::-1] * strength
    leader, rivals = held[0], held[1:]
    counts = np.arange(num_samples + 1)
    gain = float(_new_answers(belief, num_samples) @ np.maximum(counts - leader, 0.0))
    if len(rivals):
        # Dirichlet-multinomial of (rival's samples, leader's samples, the others'), per rival (R, m + 1, m + 1).
        others = num_samples - counts[:, None] - counts[None, :]
        of_others = _log_rising(strength - leader - rivals, num_samples)
        log_terms = (
            _log_rising(rivals, num_samples)[:, :, None]
            + _log_rising(np.array([leader]), num_samples)[:, None, :]
            + np.where(others >= 0, of_others[:, np.maximum(others, 0)], -np.inf)
            - _log_rising(np.array([strength]), num_samples)[:, -1, None, None]
        )
        lead = rivals[:, None, None] + counts[:, None] - leader - counts[None, :]
        gain += float((np.exp(log_terms) * np.maximum(lead, 0.0)).sum())
    return gain / (strength + num_samples)


def _log_rising(shapes: Floats, n: int) -> Floats:
    """(J,) -> (J, n + 1): log of Gamma(shape + k) / (Gamma(shape) k!) at k = 0, ..., n; of shape 0: k = 0 alone."""
    counts = np.arange(n + 1)
    nothing = (shapes <= _ROUNDING)[:, None]
    column = np.where(nothing, 1.0, shapes[:, None])
    terms: Floats = np.where(
        nothing,
        np.where(counts == 0, 0.0, -np.inf),
        gammaln(column + counts) - gammaln(column) - gammaln(counts + 1),
    )
    return terms


def _beta_binomial(a: Floats, b: Floats, n: int) -> Floats:
    """(J,), (J,) -> (J, n + 1): P(0), ..., P(n); where a or b is 0, everything is at one end."""
    counts = np.arange(n + 1)
    certain = (a <= _ROUNDING) | (b <= _ROUNDING)
    a_column, b_column = (np.where(certain, 1.0, side)[:, None] for side in (a, b))
    log_choose = gammaln(n + 1) - gammaln(counts + 1) - gammaln(n - counts + 1)
    log_terms = log_choose + betaln(a_column + counts, b_column + n - counts) - betaln(a_column, b_column)
    ends = counts[None, :] == np.where(a <= _ROUNDING, 0, n)[:, None]
    terms: Floats = np.where(certain[:, None], ends.astype(np.float64), np.exp(log_terms))
    return terms


def _new_answers(belief: VoteBelief, n: int) -> Floats:
    """Expected number of new answers with 0, 1, ..., n of n samples (0 at index 0).

    New answers have the size intensity (none s) theta^-1 (1 - theta)^(s - 1), the Dirichlet process's.
    """
    sizes = np.arange(n + 1)
    expectations = np.zeros(n + 1)
    if n and belief.none > 0:
        log_choose = gammaln(n + 1) - gammaln(sizes[1:] + 1) - gammaln(n - sizes[1:] + 1)
        expectations[1:] = (
            belief.none * belief.strength * np.exp(log_choose + betaln(sizes[1:], n - sizes[1:] + belief.strength))
        )
    return expectations
