"""Posterior over the answers of a pool, with "none of them" as an additional outcome.

    E(a) = -theta . phi(a),  E(none) = -theta_0 . phi_0,  p(a | pool) = softmax(-E) over clusters and none

phi and phi_0 are the terms of evidence (``measuring``). Majority vote is a special case: all weight on ``votes``. Where
several answers to one problem can be right (programs, plans), clusters do not compete and
p(a) = sigmoid(theta . phi(a) - theta_0 . phi_0). Where labels are violation scores, p(a) is 1 minus the expected
violation.

An answer that an exact constraint proves has p = 1. An answer that an exact constraint refutes
has p = 0 and no influence on the others.

Probabilities are recalibrated within the same family, by a temperature and a bias against "none" (``recalibration``):

    p'(a) = softmax(slope log p(a) + offset),  with p'(none) = softmax(slope log p(none)) as an additional outcome

so they still sum to 1 over clusters and "none", and the order of the clusters is unchanged. Where clusters do not
compete, p'(a) = sigmoid(offset + slope logit p(a)). A pool with fewer candidates than the labelled pools has its own
slope and offset, because a single answer is always unanimous (``pool_sizes``).

The weights maximise the likelihood of labelled problems, with a normal prior around ``PRIOR``. With few labels they
stay near the prior; without labels they equal it (see ``fitting``).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np

from raydebm.decision.evidence.measuring import POOL_SCORE, SCORE, evidence_of, terms_about
from raydebm.decision.evidence.terms import PLAIN, Reference, representatives
from raydebm.decision.table import Bools, Cluster, Floats, Ints, PoolTable, sigmoid
from raydebm.errors import ConfigError
from raydebm.extensions import VARIABLE
from raydebm.records import ScoredCandidate

Competition = Literal["exclusive", "independent"]
Outcome = Literal["correct", "violation"]

PRIOR: Mapping[str, float] = {
    "votes": 1.0,
    "authors": 0.5,
    "skill": 0.5,
    "energy": 0.25,
    "penalty": 1.0,
    "none": -1.0,
    "kind": 0.5,
}
"""Weights before any label is seen: votes at full weight, authors at half of their log-odds because they are not
independent, energies at a small weight, and E_constraint at the paper's lambda of 1. Absent terms have weight 0."""
LOWEST = 1e-6
"""Estimated probabilities are kept within [LOWEST, 1 - LOWEST]. 0 and 1 are reserved for proofs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """Posterior of one cluster."""

    cluster: Cluster
    best: ScoredCandidate
    """Candidate to return for this answer (``terms.representatives``)."""
    candidates: tuple[ScoredCandidate, ...]
    probability: float
    """Probability that the answer is right. Where labels are violation scores, 1 minus the expected violation."""
    contributions: Mapping[str, float]
    """Contribution of each term to the log-odds, relative to the average over the pool's clusters. ``base`` is the
    remainder, so that the contributions sum to the log-odds. Empty if a proof sets the probability to 0 or 1."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimates:
    """The posterior of many pools as arrays: C clusters of P pools."""

    probability: Floats
    """(C,)"""
    none: Floats
    """(P,)"""
    terms: tuple[str, ...] = ()
    """Terms with weight."""
    relative: Floats | None = None
    """Shape (C, len(terms)). Contribution of each term to -E, minus its mean over the pool's clusters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """Fitted weights with everything needed to apply them."""

    weights: Mapping[str, float]
    """theta by term. Absent terms have weight 0."""
    context_weights: Mapping[str, float]
    """theta_0 by term."""
    reference: Reference = PLAIN
    competition: Competition = "exclusive"
    outcome: Outcome = "correct"
    slope: float = 1.0
    """Inverse temperature of the recalibration, fitted on cross-fitted predictions."""
    offset: float = 0.0
    """Bias of the recalibration towards every answer and against "none"."""
    full_size: int = 0
    """Number of candidates with text from which a pool counts as full-size."""
    size_offset: float = 0.0
    """Decrease of the offset per halving below ``full_size``."""
    size_slope: float = 0.0
    """Decrease of the log slope per halving below ``full_size``."""
    num_problems: int = 0
    """Number of labelled problems in the fit."""
    task: str = ""
    """Task that the posterior was fitted for. Empty if it was not fitted, such as majority vote."""
    checkpoint: str = ""
    """Fingerprint of the ensemble whose energies the posterior was fitted on. Empty if unknown."""

    def __post_init__(self) -> None:
        answers, none = ([term.name for term in terms_about(about)] for about in ("answer", "none"))
        unknown = [
            *(name for name in self.weights if name not in answers and not name.startswith(SCORE)),
            *(name for name in self.context_weights if name not in none and not name.startswith(POOL_SCORE)),
        ]
        if unknown:
            raise ConfigError(
                f"the posterior names unknown terms of evidence: {', '.join(sorted(unknown))}; known: "
                f"{', '.join((*answers, *none))}. Calibrate again with this version, or name the module that adds "
                f"them in {VARIABLE}"
            )
        for name, known in (("competition", get_args(Competition)), ("outcome", get_args(Outcome))):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} of the posterior is {getattr(self, name)!r}; known: {', '.join(known)}")
        own = ("slope", "offset", "full_size", "size_offset", "size_slope")
        numbers = {**self.weights, **self.context_weights, **{name: getattr(self, name) for name in own}}
        for name, value in numbers.items():
            if isinstance(value, str) or not math.isfinite(value):
                raise ConfigError(f"{name} of the posterior must be a finite number, got {value!r}; calibrate again")

    def beliefs(self, pool: Sequence[ScoredCandidate]) -> tuple[Belief, ...]:
        """Beliefs about a pool's answers, most probable first. Ties go to the answer with the lowest
        energy, then to the smallest key."""
        table = PoolTable.of([pool])
        return self.beliefs_of(pool, table, self.estimates(table))

    def beliefs_of(self, pool: Sequence[ScoredCandidate], table: PoolTable, estimates: Estimates) -> tuple[Belief, ...]:
        """``beliefs`` of a pool whose table and estimates are known."""
        assert estimates.relative is not None
        given = representatives(table, self.reference)
        scaled = self.slope * estimates.relative
        with np.errstate(divide="ignore"):
            base = np.log(estimates.probability / (1 - estimates.probability)) - scaled.sum(axis=1)
        lines = zip(
            table.clusters[0], given, estimates.probability.tolist(), base.tolist(), scaled.tolist(), strict=True
        )
        beliefs = [
            Belief(
                cluster=cluster,
                best=table.candidates[best],
                candidates=tuple(pool[member] for member in cluster.rows),
                probability=p,
                contributions={"base": rest, **dict(zip(estimates.terms, added, strict=True))} if 0 < p < 1 else {},
            )
            for cluster, best, p, rest, added in lines
        ]

        def rank(belief: Belief) -> tuple[float, float, str]:
            energy = min(scored.total_energy(self.reference.lambda_) for scored in belief.candidates)
            return (-belief.probability, energy, belief.cluster.key)

        return tuple(sorted(beliefs, key=rank))

    def estimates(self, table: PoolTable) -> Estimates:
        """Recalibrated probabilities as arrays, with exact proofs applied."""
        terms, context = (
            tuple(name for name, weight in weights.items() if weight != 0)
            for weights in (self.weights, self.context_weights)
        )
        evidence = evidence_of(table, self.reference, names=(*terms, *context))
        owner, count = table.pool_of_cluster, len(table.clusters)
        # Clusters without a value of a term get the mean over the pool's other clusters, or 0 if none has a value.
        columns = [self.weights[name] * filled(evidence.term(name), owner, count) for name in terms]
        added = np.column_stack([np.empty((len(owner), 0)), *columns])
        scores, none = added.sum(axis=1), np.zeros(count)
        for name, weight in self.context_weights.items():
            none += weight * np.nan_to_num(evidence.context_term(name))
        proof = table.proof
        scores[proof == 0] = -math.inf  # refuted answers have no share of the rest
        if self.competition == "exclusive":
            shares, left = softmax(scores, none, owner)
        else:
            shares, left = sigmoid(scores - none[owner]), np.zeros(count)
        is_open = np.isnan(proof)
        probability, left = self.recalibrate(*self._inside(shares, left, owner, is_open), owner, table.written)
        probability = np.where(is_open, probability, proof)
        if self.competition == "exclusive":
            is_proven = np.bincount(owner, proof == 1, count) > 0
            probability = np.where(is_proven[owner], proof == 1, probability)
            left = np.where(is_proven, 0.0, left)
        else:
            best = np.zeros(count)
            np.maximum.at(best, owner, probability)
            left = 1 - best
        sizes = np.maximum(np.bincount(owner, minlength=count), 1)
        means = np.zeros((count, len(terms)))
        np.add.at(means, owner, added)
        return Estimates(
            probability=probability, none=left, terms=terms, relative=added - (means / sizes[:, None])[owner]
        )

    def halvings(self, written: Ints) -> Floats:
        """Number of halvings from ``full_size`` to a pool's number of candidates with text, at least 0. Shape (P,)."""
        full: Floats = np.log2(np.maximum(self.full_size, 1) / np.clip(written, 1, max(self.full_size, 1)))
        return full

    def recalibrate(self, probability: Floats, none: Floats, owner: Ints, written: Ints) -> tuple[Floats, Floats]:
        """Recalibrate probabilities of clusters and of "none", shapes (C,) and (P,).

        0 and 1 are unchanged. Where clusters compete, a pool's probabilities and "none" still sum to 1.

        Args:
            probability: probability of each cluster, shape (C,).
            none: probability that no answer of the pool is right, shape (P,). Ignored where clusters do not compete.
            owner: pool of each cluster, shape (C,).
            written: number of candidates with text, shape (P,).
        """
        halvings = self.halvings(written)
        offset = (self.offset - self.size_offset * halvings)[owner]
        slope = self.slope * np.exp(-self.size_slope * halvings)
        if not offset.any() and (slope == 1).all():
            return probability, none
        is_open = (probability > 0) & (probability < 1)
        with np.errstate(divide="ignore"):
            if self.competition == "independent":
                estimates = sigmoid(offset + slope[owner] * (np.log(probability) - np.log1p(-probability)))
                left = none
            else:
                estimates, left = softmax(slope[owner] * np.log(probability) + offset, slope * np.log(none), owner)
        estimates, left = self._inside(estimates, left, owner, is_open)
        return np.where(is_open, estimates, probability), left

    def _inside(self, probability: Floats, none: Floats, owner: Ints, is_open: Bools) -> tuple[Floats, Floats]:
        """Keep estimates of open clusters away from 0 and 1, because a rounded 0 or 1 is not a proof.

        Where clusters compete, a pool with an estimate below ``LOWEST`` is mixed with a small share of the uniform
        distribution over open clusters, which keeps the sum of 1 and the order.
        """
        if self.competition == "independent":
            return np.where(is_open, np.clip(probability, LOWEST, 1 - LOWEST), probability), none
        outcomes = np.bincount(owner, is_open, len(none)) + 1
        is_extreme = (none < LOWEST) | (np.bincount(owner, is_open & (probability < LOWEST), len(none)) > 0)
        given = np.where(is_extreme, LOWEST, 0.0)
        rest = 1 - given * outcomes
        return np.where(is_open, rest[owner] * probability + given[owner], probability), rest * none + given

    def to_json(self) -> dict[str, Any]:
        """Weights and reference as JSON values, as in a policy file."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "reference": self.reference.to_json()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Posterior":
        """Inverse of ``to_json``.

        Raises:
            ConfigError: missing or unknown key, or unknown term of evidence.
        """
        try:
            return cls(**{**value, "reference": Reference.from_json(value["reference"])})
        except (KeyError, TypeError) as error:
            raise ConfigError(f"the posterior cannot be read ({error}); calibrate again with this version") from error


def confidences(beliefs: Sequence[Belief]) -> dict[str, float]:
    """Probability that a candidate's answer is right, by candidate id. Candidates without an answer are absent."""
    return {scored.candidate.candidate_id: belief.probability for belief in beliefs for scored in belief.candidates}


def filled(column: Floats, owner: Ints, count: int) -> Floats:
    """Fill the gaps of a term with its mean over the pool's clusters that have it; 0 if none has it."""
    known = ~np.isnan(column)
    if known.all():
        return column
    sizes = np.bincount(owner, known, count)
    totals = np.bincount(owner, np.where(known, column, 0.0), count)
    means = np.divide(totals, sizes, out=np.zeros(count), where=sizes > 0)
    return np.where(known, column, means[owner])


def softmax(scores: Floats, none: Floats, owner: Ints) -> tuple[Floats, Floats]:
    """Share of each cluster among its pool's clusters and "none", and the share of "none". Shapes (C,) and (P,)."""
    top = none.copy()
    np.maximum.at(top, owner, scores)
    mass, left = np.exp(scores - top[owner]), np.exp(none - top)
    total = np.bincount(owner, mass, len(none)) + left
    return mass / total[owner], left / total
