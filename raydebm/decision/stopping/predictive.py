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
    """What a vote for an answer that nobody has given yet will count."""
    unanswered: float
    """Samples without an answer; they recur and count for nothing."""

    @property
    def total(self) -> float:
        return math.fsum(self.votes) + self.unanswered


@lru_cache(maxsize=65536)
def lead_probability(standing: Standing, *, remaining: int, alpha: float) -> float:
    """Probability that the leader's score is above every other's after ``remaining`` more samples.

    Exact under the process at this alpha. A tie at the end counts against the leader. Remembered, because the same few
    votes occur again and again.
    """
    if not standing.votes:
        return 0.0
    if _cannot_be_overtaken(standing, remaining):
        return 1.0
    length = 4 * (remaining + 1)
    mass = standing.total + alpha
    tilt = remaining / (remaining + mass) * 10 ** (-ALIASING_DIGITS / length)
    counts = np.arange(remaining + 1)
    final_scores = standing.rates[0] * (standing.votes[0] + counts)
    spectrum = _spectrum(_negative_binomial(standing.unanswered, tilt, remaining)[None, :], length)
    rivals = Counter(zip(standing.votes[1:], standing.rates[1:], strict=True))
    for (votes, rate), number in rivals.items():
        terms = _negative_binomial(votes, tilt, remaining)
        allowed = rate * (votes + counts)[None, :] < final_scores[:, None] * (1 - _ROUNDING)
        spectrum = spectrum * _spectrum(np.where(allowed, terms, 0.0), length) ** number
    new_terms = alpha * np.divide(tilt**counts, counts, where=counts > 0, out=np.zeros(remaining + 1))
    allowed = standing.new_rate * counts[None, :] < final_scores[:, None] * (1 - _ROUNDING)
    new_answers = np.exp(_spectrum(np.where(allowed, new_terms, 0.0), length)) * (1 - tilt) ** alpha
    others = _coefficients(spectrum * new_answers, remaining - counts, length)
    joint = float(_negative_binomial(standing.votes[0], tilt, remaining) @ others)
    whole = float(_negative_binomial(mass, tilt, remaining)[remaining])
    return min(max(joint / whole, 0.0), 1.0)


def _cannot_be_overtaken(standing: Standing, remaining: int) -> bool:
    leader = standing.rates[0] * standing.votes[0] * (1 - _ROUNDING)
    rivals = zip(standing.rates[1:], standing.votes[1:], strict=True)
    return leader > standing.new_rate * remaining and all(leader > rate * (n + remaining) for rate, n in rivals)


def _negative_binomial(shape: float, q: float, most: int) -> Floats:
    """P(0), ..., P(most) of a negative binomial with this shape; all at 0 for shape 0."""
    counts = np.arange(most + 1)
    if shape <= 0 or q <= 0:
        return np.where(counts == 0, 1.0, 0.0)
    log_terms = gammaln(shape + counts) - gammaln(shape) - gammaln(counts + 1)
    terms: Floats = np.exp(log_terms + shape * math.log1p(-q) + counts * math.log(q))
    return terms


def _spectrum(terms: Floats, length: int) -> Complexes:
    transformed: Complexes = np.fft.rfft(terms, n=length, axis=1)
    return transformed


def _coefficients(spectrum: Complexes, degrees: NDArray[np.int64], length: int) -> Floats:
    """Row i's coefficient of degree ``degrees[i]``, from the half of a real signal's spectrum; ``length`` is even."""
    frequencies = np.arange(length // 2 + 1)
    phases = np.exp(2j * math.pi * np.outer(degrees, frequencies) / length)
    # Frequencies in between stand for two, themselves and their conjugates.
    phases[:, 1:-1] *= 2
    found: Floats = np.einsum("ij,ij->i", spectrum, phases).real / length
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """Probabilities of the answers, seen as a Dirichlet with ``strength`` pseudo-samples."""

    probabilities: tuple[float, ...]
    """Per answer."""
    none: float
    """Of answers that nobody has given."""
    strength: float
    """> 0; the number of samples plus alpha, so that the share of votes is the special case."""


def reach_probability(belief: Belief, *, remaining: int, threshold: float) -> float:
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


def expected_gain(belief: Belief, *, num_samples: int) -> float:
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
        # The pair's number of samples (rows), then the rival's part of these (columns).
        pair = _beta_binomial(leader + rivals, strength - leader - rivals, num_samples)
        sizes, parts = counts[None, :, None], np.minimum(counts[None, None, :], counts[None, :, None])
        log_choose = gammaln(sizes + 1) - gammaln(parts + 1) - gammaln(sizes - parts + 1)
        # Beta functions of 0 are infinite; an answer of probability 0 is taken for one of nearly 0.
        top, below = max(leader, _ROUNDING), np.maximum(rivals, _ROUNDING)[:, None, None]
        log_inside = betaln(below + parts, top + sizes - parts) - betaln(below, top)
        inside = np.where(counts[None, None, :] <= sizes, np.exp(log_choose + log_inside), 0.0)
        lead = rivals[:, None, None] + 2 * counts[None, None, :] - leader - counts[None, :, None]
        gain += float((pair[:, :, None] * inside * np.maximum(lead, 0.0)).sum())
    return gain / (strength + num_samples)


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


def _new_answers(belief: Belief, n: int) -> Floats:
    """Expected number of new answers with 0, 1, ..., n of n samples (0 at index 0).

    New answers have the size intensity (none s) theta^-1 (1 - theta)^(s - 1), the Dirichlet process's.
    """
    sizes = np.arange(n + 1)
    found = np.zeros(n + 1)
    if n and belief.none > 0:
        log_choose = gammaln(n + 1) - gammaln(sizes[1:] + 1) - gammaln(n - sizes[1:] + 1)
        found[1:] = (
            belief.none * belief.strength * np.exp(log_choose + betaln(sizes[1:], n - sizes[1:] + belief.strength))
        )
    return found
