"""One posterior over the answers of a pool, with "none of them" as one more outcome.

    E(a) = -theta . phi(a),  E(none) = -theta_0 . phi_0,  p(a | pool) = softmax(-E) over clusters and none

phi and phi_0 are the terms of ``evidence``. The paper's rule, majority vote and the energy-weighted vote are special
cases: all weight on ``minus_energy``, ``votes`` or ``energy_vote`` (``special_case``). Where several answers of one
problem can be right (programs, plans), clusters do not compete and p(a) = sigmoid(theta . phi(a) - theta_0 . phi_0).
Where labels are violation scores, p(a) is 1 minus the expected violation.

An answer that an exact constraint proves has p = 1, one that it refutes p = 0 and takes no share of the others: these
are facts, not estimates.

The weights are the maximum of the likelihood of labelled problems with a normal prior around ``PRIOR``; with few labels
the prior stays, with none it is what decides. See ``fitting`` for how.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from raydebm.decision.evidence import (
    CONTEXT,
    PLAIN,
    TERMS,
    Cluster,
    Floats,
    Ints,
    PoolTable,
    Reference,
    evidence_of,
)
from raydebm.errors import ConfigError
from raydebm.records import ScoredCandidate

Competition = Literal["exclusive", "independent"]
Outcome = Literal["correct", "violation"]

PRIOR: Mapping[str, float] = {"votes": 1.0, "authors": 0.5, "skill": 0.5, "energy": 0.25, "none": -1.0}
"""Weights before any label was seen: votes as they are counted, authors at half of their log-odds because authors are
not independent, energies a little. Absent terms have weight 0."""
LOWEST = 1e-6
"""Estimated probabilities stay in [1e-6, 1 - 1e-6]; 0 and 1 are kept for what is proven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What is believed about one cluster."""

    cluster: Cluster
    best: ScoredCandidate
    """The candidate to give out for this answer."""
    candidates: tuple[ScoredCandidate, ...]
    probability: float
    """That the answer is right; where labels are violation scores, 1 minus the expected violation."""
    contributions: Mapping[str, float]
    """What each term adds to the log-odds, relative to the average over the pool's clusters; ``base`` is the rest, so
    that all of them add up to the log-odds. Empty where the probability is 0 or 1 by proof."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolBeliefs:
    """The posterior of one pool."""

    beliefs: tuple[Belief, ...]
    """Most probable first; equal ones by the lower energy of their best candidate, then by key."""
    none: float
    """Probability that no answer of the pool is right; where answers do not compete, that the best one is not."""

    @property
    def best(self) -> Belief | None:
        return self.beliefs[0] if self.beliefs else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimates:
    """The posterior of many pools as arrays: C clusters of P pools."""

    probability: Floats
    """(C,)"""
    none: Floats
    """(P,)"""
    added: Mapping[str, Floats]
    """What each term adds to -E, (C,) each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """Fitted weights with everything needed to apply them."""

    weights: Mapping[str, float]
    """theta by term; a term that is not named has weight 0."""
    context_weights: Mapping[str, float]
    """theta_0 by term."""
    reference: Reference = PLAIN
    competition: Competition = "exclusive"
    outcome: Outcome = "correct"
    slope: float = 1.0
    """Confidence is sigmoid(offset + slope * logit p): recalibration of the winner, cross-fitted."""
    offset: float = 0.0
    num_problems: int = 0
    """Labelled problems that it was fitted on."""
    task: str = ""
    """Name of the task that it was fitted for; empty for a special case."""

    def __post_init__(self) -> None:
        unknown = [*({*self.weights} - {*TERMS}), *({*self.context_weights} - {*CONTEXT})]
        if unknown:
            raise ConfigError(
                f"the posterior names unknown terms of evidence: {', '.join(sorted(unknown))}; known: "
                f"{', '.join((*TERMS, *CONTEXT))}. Calibrate again with this version"
            )
        for name, known in (("competition", get_args(Competition)), ("outcome", get_args(Outcome))):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} of the posterior is {getattr(self, name)!r}; known: {', '.join(known)}")
        numbers = {**self.weights, **self.context_weights, "slope": self.slope, "offset": self.offset}
        for name, value in numbers.items():
            if isinstance(value, str) or not math.isfinite(value):
                raise ConfigError(f"{name} of the posterior must be a finite number, got {value!r}; calibrate again")

    def beliefs(self, pool: Sequence[ScoredCandidate]) -> PoolBeliefs:
        """Probabilities of a pool's answers."""
        return self.beliefs_of([pool])[0]

    def beliefs_of(self, pools: Sequence[Sequence[ScoredCandidate]]) -> list[PoolBeliefs]:
        """Probabilities of the answers of many pools at once."""
        table = PoolTable.of(pools, self.reference.lambda_)
        estimates = self.estimates(table)
        ends = np.cumsum([len(found) for found in table.clusters])
        return [
            self._pool_beliefs(pool, clusters, estimates, slice(end - len(clusters), end), place)
            for place, (pool, clusters, end) in enumerate(zip(pools, table.clusters, ends, strict=True))
        ]

    def estimates(self, table: PoolTable) -> "Estimates":
        """Probabilities as arrays: exact proofs applied, and recalibrated."""
        evidence = evidence_of(table, self.reference)
        owner, count = table.pool_of_cluster, len(table.clusters)
        added = self._added(evidence.terms, owner, count)
        scores = sum(added.values(), start=np.zeros(table.num_clusters))
        context = np.nan_to_num(evidence.context)
        none = sum(
            (weight * context[:, CONTEXT.index(name)] for name, weight in self.context_weights.items()),
            start=np.zeros(count),
        )
        proof = np.array(
            [math.nan if c.proof is None else float(c.proof) for clusters in table.clusters for c in clusters]
        )
        scores[proof == 0] = -math.inf  # what is refuted takes no share of what is left
        is_exclusive = self.competition == "exclusive"
        shares = softmax(scores, none, owner) if is_exclusive else _sigmoid(scores - none[owner])
        found = self.recalibrate(np.clip(shares, LOWEST, 1 - LOWEST))  # a rounded 0 or 1 is no proof
        found = np.where(np.isnan(proof), found, proof)
        if is_exclusive:
            is_proven = np.bincount(owner, proof == 1, count)[owner] > 0
            found = np.where(is_proven, proof == 1, found)
            left = np.maximum(1 - np.bincount(owner, found, count), 0.0)
        else:
            best = np.zeros(count)
            np.maximum.at(best, owner, found)
            left = 1 - best
        return Estimates(probability=found, none=left, added=added)

    def recalibrate(self, probability: Floats) -> Floats:
        """sigmoid(offset + slope * logit p), kept off 0 and 1; a proof stays a proof."""
        inside = np.clip(probability, LOWEST, 1 - LOWEST)
        found = np.clip(_sigmoid(self.offset + self.slope * np.log(inside / (1 - inside))), LOWEST, 1 - LOWEST)
        return np.where((probability <= 0) | (probability >= 1), probability, found)

    def _added(self, terms: Floats, owner: Ints, count: int) -> dict[str, Floats]:
        """theta_j phi_j(a) by term, shape (C,) each. A term that was measured for some clusters of a pool counts as
        their mean for the others; where it was measured for none, it adds nothing."""
        return {
            name: weight * filled(terms[:, TERMS.index(name)], owner, count)
            for name, weight in self.weights.items()
            if weight != 0
        }

    def _pool_beliefs(
        self,
        pool: Sequence[ScoredCandidate],
        clusters: Sequence[Cluster],
        estimates: "Estimates",
        rows: slice,
        place: int,
    ) -> PoolBeliefs:
        means = {name: float(column[rows].mean()) if clusters else 0.0 for name, column in estimates.added.items()}
        beliefs = [
            Belief(
                cluster=cluster,
                best=pool[cluster.representative],
                candidates=tuple(pool[member] for member in cluster.rows),
                probability=float(estimates.probability[row]),
                contributions=self._contributions(
                    {name: float(column[row]) - means[name] for name, column in estimates.added.items()},
                    float(estimates.probability[row]),
                ),
            )
            for row, cluster in zip(range(rows.start, rows.stop), clusters, strict=True)
        ]
        beliefs.sort(key=lambda belief: (-belief.probability, *_tie(belief, self.reference.lambda_)))
        return PoolBeliefs(beliefs=tuple(beliefs), none=float(estimates.none[place]))

    def _contributions(self, added: Mapping[str, float], probability: float) -> dict[str, float]:
        if not 0 < probability < 1:
            return {}
        scaled = {name: self.slope * value for name, value in added.items()}
        log_odds = math.log(probability / (1 - probability))
        return {"base": log_odds - math.fsum(scaled.values()), **scaled}

    def to_json(self) -> dict[str, Any]:
        return {
            "weights": dict(self.weights),
            "context_weights": dict(self.context_weights),
            "reference": self.reference.to_json(),
            "competition": self.competition,
            "outcome": self.outcome,
            "slope": self.slope,
            "offset": self.offset,
            "num_problems": self.num_problems,
            "task": self.task,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Posterior":
        """Inverse of ``to_json``.

        Raises:
            ConfigError: a key is missing or unknown, or a term of evidence is unknown.
        """
        try:
            return cls(**{**value, "reference": Reference.from_json(value["reference"])})
        except (KeyError, TypeError) as error:
            raise ConfigError(f"the posterior cannot be read ({error}); calibrate again with this version") from error


def confidences(beliefs: PoolBeliefs) -> dict[str, float]:
    """Probability that a candidate's answer is right, by candidate id; candidates without an answer are absent."""
    return {
        scored.candidate.candidate_id: belief.probability for belief in beliefs.beliefs for scored in belief.candidates
    }


def special_case(term: str, lambda_: float = 1.0) -> Posterior:
    """All weight on one term: ``votes`` is majority vote, ``minus_energy`` the paper's argmin E, ``energy_vote`` the
    energy-weighted vote."""
    reference = Reference(authors={}, default=PLAIN.default, lambda_=lambda_)
    return Posterior(weights={term: 1.0}, context_weights={}, reference=reference)


def filled(column: Floats, owner: Ints, count: int) -> Floats:
    """A term with its gaps closed by the mean over the pool's clusters that have it; 0 in a pool where none has it."""
    known = ~np.isnan(column)
    if known.all():
        return column
    sizes = np.bincount(owner, known, count)
    totals = np.bincount(owner, np.where(known, column, 0.0), count)
    means = np.divide(totals, sizes, out=np.zeros(count), where=sizes > 0)
    return np.where(known, column, means[owner])


def softmax(scores: Floats, none: Floats, owner: Ints) -> Floats:
    """Share of each cluster beside its pool's other clusters and "none", shape (C,)."""
    top = none.copy()
    np.maximum.at(top, owner, scores)
    mass = np.exp(scores - top[owner])
    total = np.bincount(owner, mass, len(none)) + np.exp(none - top)
    shares: Floats = mass / total[owner]
    return shares


def _sigmoid(values: Floats) -> Floats:
    found: Floats = 1 / (1 + np.exp(-np.clip(values, -700, 700)))
    return found


def _tie(belief: Belief, lambda_: float) -> tuple[float, str]:
    return (belief.best.total_energy(lambda_), belief.cluster.key)
