"""Evidence for and against each distinct answer of a pool.

In:   the scored candidates of one problem or of many, and a reference: what is known about their authors.
Out:  clusters (distinct answers) with a vector of named, bounded terms each, and a vector for "none of them is right".
Does not know: labels, weights, thresholds, Ray, HTTP.

A cluster holds the candidates whose answers are equal (``vote_key``). Candidates without text, without an answer, or
whose check failed belong to no cluster. Terms of a cluster a, with N candidates in clusters, author g(i) of candidate
i, energies mu_i, and z_i = (mu_i - center_g) / scale_g, the energy standardised within its author, so that who wrote
an answer enters through ``authors`` alone:

===============  ======================================================================================
``votes``        log(n_a / N), the log share of candidates (majority vote)
``authors``      sum over authors g of f_ga, the share of g's candidates that are in a: one vote per author
``skill``        sum over authors of f_ga logit q_g, q_g being the author's skill. With ``authors``, whose weight
                 takes the part of log 1/c, c the chance that wrong answers coincide, this is the one-coin naive
                 Bayes vote; alone it collapses where q_g < 1/2
``energy``       mean of z over the pool minus the lowest z in a
``mean_energy``  mean of z over the pool minus the mean of z in a
``members``      share of ensemble members whose lowest energy is in a
``length``       mean over the pool minus the mean over a of the log number of characters, standardised within authors
                 like the energy: high for an answer that is reached briefly
``penalty``      minus the lowest E_constraint in a, at most ``MAX_PENALTY``
``energy_vote``  log of a's share of sum exp(-E), E = mu + lambda E_constraint (energy-weighted vote)
``minus_energy`` minus the lowest E in a (the paper's Eq. 1)
``score:<name>`` mean over a of a baseline's score minus the mean over the pool, standardised within authors; also of
                 ``own_logprob`` and ``own_worst_logprob``, what the generators themselves say
===============  ======================================================================================

Terms for "none of them":

==============  ======================================================================================
``none``        1
``pool_energy`` mean of z over the pool: high when all answers look wrong
``pool_length`` mean over the pool of the standardised log number of characters: high where all write more than usual
``unparsed``    share of written candidates without an answer
``disagreement`` log of the number of clusters
``sigma``       spread over members of the lead of the best cluster (paper's sigma, taken on the decision)
``pool_score:<name>`` mean over the pool of a baseline's standardised score
==============  ======================================================================================

A term that was not measured is NaN, which adds nothing, and is never taken for 0.

Sources: optimal aggregation of answers and verifier scores, arXiv 2510.13918; one coin per author, Dawid and Skene
(1979).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from raydebm.decision.evidence.groups import Floats, Ints, lowest, mean, ratio
from raydebm.decision.evidence.member_terms import by_member
from raydebm.decision.evidence.reference import Reference
from raydebm.energy import total_energies, total_energy
from raydebm.records import ScoredCandidate

TERMS = (
    "votes",
    "authors",
    "skill",
    "energy",
    "mean_energy",
    "members",
    "penalty",
    "length",
    "energy_vote",
    "minus_energy",
)
CONTEXT = ("none", "pool_energy", "pool_length", "unparsed", "disagreement", "sigma")
ENERGY_TERMS = frozenset({"energy", "mean_energy", "members", "energy_vote", "minus_energy", "pool_energy", "sigma"})
"""Terms that need a scorer."""
SCORE, POOL_SCORE = "score:", "pool_score:"
"""What the terms of baselines' scores begin with, of clusters and of "none of them"; the baseline's name follows."""
MAX_PENALTY = 10.0
MIN_LOG_SHARE = -50.0
MAX_Z = 5.0
"""Standardised energies and lengths are cut to [-5, 5], so that one outlier cannot decide alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The candidates of a pool that give one answer."""

    key: str
    rows: tuple[int, ...]
    """Their places in the pool."""
    representative: int
    """Place of the candidate to give out: a proven one before others and a refuted one last, then lowest E, lowest mu,
    lowest E_constraint, the earlier pass, the smaller id."""
    proof: bool | None
    """As in ``ConstraintReport.proof``: True when any of its candidates is proven right."""


def clusters_of(pool: Sequence[ScoredCandidate], lambda_: float) -> tuple[Cluster, ...]:
    """Group a pool by answer, ordered by key. The order of the pool does not matter."""
    rows: dict[str, list[int]] = {}
    for row, scored in enumerate(pool):
        key = scored.report.vote_key
        if key is not None and math.isfinite(scored.report.penalty) and scored.candidate.text is not None:
            rows.setdefault(key, []).append(row)
    return tuple(
        Cluster(
            key=key,
            rows=tuple(rows[key]),
            representative=min(rows[key], key=lambda row: _preference(pool[row], lambda_))
            if len(rows[key]) > 1
            else rows[key][0],
            proof=_proof([pool[row].report.proof for row in rows[key]]),
        )
        for key in sorted(rows)
    )


_PROOF_ORDER = {True: 0, None: 1, False: 2}


def _preference(scored: ScoredCandidate, lambda_: float) -> tuple[int, float, float, float, int, str]:
    mu = math.inf if scored.energies is None else scored.energies.mu
    candidate, report = scored.candidate, scored.report
    energy = total_energy(mu, report.penalty, lambda_)
    order = _PROOF_ORDER[report.proof]
    return (order, energy, mu, report.penalty, candidate.pass_index, candidate.candidate_id)


def _proof(proofs: Sequence[bool | None]) -> bool | None:
    if True in proofs:
        return True
    return None if None in proofs else False


@dataclass(frozen=True, kw_only=True, eq=False)
class PoolTable:
    """Pools as columns: P pools, C clusters, R candidates in clusters, K ensemble members, G authors."""

    clusters: tuple[tuple[Cluster, ...], ...]
    """By pool."""
    authors: tuple[str, ...]
    """Names, by code."""
    pool_of_row: Ints
    cluster_of_row: Ints
    author_of_row: Ints
    place_of_row: Ints
    """Place in the pool."""
    members: Floats
    """(R, K); NaN where a member has no energy."""
    penalty: Floats
    """(R,)"""
    length: Floats
    """(R,): log(1 + number of characters)."""
    unparsed: Floats
    """(P,): share of written candidates that are in no cluster; 0 where none was written."""
    scores: Mapping[str, Floats] = field(default_factory=dict)
    """(R,) by baseline; NaN where it has no score."""

    @classmethod
    def of(cls, pools: Sequence[Sequence[ScoredCandidate]], lambda_: float) -> "PoolTable":
        """Group every pool's candidates; ``lambda_`` weighs E_constraint in the choice of representatives."""
        codes: dict[str, int] = {}
        clusters = tuple(clusters_of(pool, lambda_) for pool in pools)
        rows = [
            (pool, index, place)
            for pool, found in enumerate(clusters)
            for index, cluster in enumerate(found)
            for place in cluster.rows
        ]
        offsets = np.concatenate([[0], np.cumsum([len(found) for found in clusters])]).astype(np.intp)
        scored = [pools[pool][place] for pool, _, place in rows]
        energies = [() if item.energies is None else item.energies.members for item in scored]
        members = np.full((len(rows), max(map(len, energies), default=0)), math.nan)
        for row, values in enumerate(energies):
            members[row, : len(values)] = values
        places = np.array(rows, dtype=np.intp).reshape(len(rows), 3)
        scores = [item.evidence_scores for item in scored]
        return cls(
            clusters=clusters,
            author_of_row=np.array(
                [codes.setdefault(item.candidate.generator, len(codes)) for item in scored], dtype=np.intp
            ),
            authors=tuple(codes),
            pool_of_row=places[:, 0],
            cluster_of_row=offsets[places[:, 0]] + places[:, 1],
            place_of_row=places[:, 2],
            members=members,
            penalty=np.array([item.report.penalty for item in scored], dtype=np.float64),
            length=np.log1p([len(item.candidate.text or "") for item in scored]),
            unparsed=np.array([_unparsed(pool, found) for pool, found in zip(pools, clusters, strict=True)]),
            scores={
                name: np.array([values.get(name, math.nan) for values in scores], dtype=np.float64)
                for name in sorted({name for values in scores for name in values})
            },
        )

    @cached_property
    def mu(self) -> Floats:
        """(R,): mean over the members that have an energy; NaN without any."""
        known = ~np.isnan(self.members)
        counts = known.sum(axis=1)
        totals = np.where(known, self.members, 0.0).sum(axis=1)
        return ratio(totals, counts)

    @cached_property
    def pool_of_cluster(self) -> Ints:
        """(C,)"""
        return np.repeat(np.arange(len(self.clusters)), [len(found) for found in self.clusters])

    @cached_property
    def proof(self) -> Floats:
        """(C,): 1 for proven, 0 for refuted, NaN for neither."""
        proofs = [cluster.proof for clusters in self.clusters for cluster in clusters]
        return np.array([math.nan if proof is None else float(proof) for proof in proofs], dtype=np.float64)

    @property
    def num_clusters(self) -> int:
        return len(self.pool_of_cluster)

    @cached_property
    def votes_of_author(self) -> Ints:
        """(R,): candidates in clusters that this row's author has in this row's pool."""
        key = self.pool_of_row * max(len(self.authors), 1) + self.author_of_row
        _, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
        votes: Ints = counts[inverse].astype(np.intp)
        return votes


def _unparsed(pool: Sequence[ScoredCandidate], clusters: Sequence[Cluster]) -> float:
    written = sum(scored.candidate.text is not None for scored in pool)
    return 1 - sum(len(cluster.rows) for cluster in clusters) / written if written else 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """Every cluster's terms, and every pool's."""

    terms: Floats
    """Shape (C, len(names)), the clusters of all pools after each other; NaN where not measured."""
    context: Floats
    """Shape (P, len(context_names)); NaN where not measured."""
    scores: tuple[str, ...] = ()
    """Names of the baselines whose scores follow ``TERMS`` and ``CONTEXT``."""

    @property
    def names(self) -> tuple[str, ...]:
        return (*TERMS, *(SCORE + name for name in self.scores))

    @property
    def context_names(self) -> tuple[str, ...]:
        return (*CONTEXT, *(POOL_SCORE + name for name in self.scores))

    def term(self, name: str) -> Floats:
        """(C,): one term; all NaN for a score that no candidate has."""
        return self.terms[:, self.names.index(name)] if name in self.names else np.full(len(self.terms), math.nan)

    def context_term(self, name: str) -> Floats:
        """(P,), likewise."""
        names = self.context_names
        return self.context[:, names.index(name)] if name in names else np.full(len(self.context), math.nan)


def evidence_of(table: PoolTable, reference: Reference, *, skills: Floats | None = None) -> Evidence:
    """Measure every term of every cluster.

    Args:
        table: the pools.
        reference: what is known about authors.
        skills: log-odds of each row's author, shape (R,), in place of the reference's.
    """
    known = [reference.author(name) for name in table.authors]
    figures = [(of.skill, of.center, of.scale, of.length_center, of.length_scale) for of in known]
    skill, center, scale, length_center, length_scale = np.array(figures).reshape(-1, 5)[table.author_of_row].T
    count, cluster, pool = table.num_clusters, table.cluster_of_row, table.pool_of_row
    voices = 1 / table.votes_of_author
    scored = ~np.isnan(table.mu)
    z = np.clip((table.mu - center) / scale, -MAX_Z, MAX_Z)
    length = np.clip((table.length - length_center) / length_scale, -MAX_Z, MAX_Z)
    pool_length = mean(length, pool, len(table.clusters))
    level = mean(z[scored], pool[scored], len(table.clusters))
    cluster_level = level[table.pool_of_cluster]
    wins, spread = by_member(table.members, table.cluster_of_row, table.pool_of_cluster, len(table.clusters))
    columns = {
        "votes": log_votes(table),
        "authors": np.bincount(cluster, voices, count),
        "skill": np.bincount(cluster, voices * (skill if skills is None else skills), count),
        "energy": cluster_level - lowest(z[scored], cluster[scored], count),
        "mean_energy": cluster_level - mean(z[scored], cluster[scored], count),
        "members": wins,
        "penalty": -np.minimum(lowest(table.penalty, cluster, count), MAX_PENALTY),
        "length": pool_length[table.pool_of_cluster] - mean(length, cluster, count),
        "energy_vote": energy_votes(table, reference.lambda_),
        "minus_energy": minus_energies(table, reference.lambda_),
    }
    num_clusters = np.bincount(table.pool_of_cluster, minlength=len(table.clusters))
    context = np.column_stack(
        [
            np.ones(len(table.clusters)),
            level,
            pool_length,
            table.unparsed,
            np.log(np.maximum(num_clusters, 1)),
            spread,
        ]
    )
    relative, pool_scores = _score_terms(table, reference)
    return Evidence(
        terms=np.column_stack([*(columns[name] for name in TERMS), *relative]),
        context=np.column_stack([context, *pool_scores]),
        scores=tuple(table.scores),
    )


def _score_terms(table: PoolTable, reference: Reference) -> tuple[list[Floats], list[Floats]]:
    """The terms of each baseline's scores: of clusters, and of "none of them"."""
    relative, levels = [], []
    for name, values in table.scores.items():
        norms = np.array([reference.score_norm(author, name) for author in table.authors]).reshape(-1, 2)
        center, scale = norms[table.author_of_row].T
        known = ~np.isnan(values)
        z = np.clip((values - center) / scale, -MAX_Z, MAX_Z)[known]
        level = mean(z, table.pool_of_row[known], len(table.clusters))
        own = mean(z, table.cluster_of_row[known], table.num_clusters)
        relative.append(own - level[table.pool_of_cluster])
        levels.append(level)
    return relative, levels


def log_votes(table: PoolTable) -> Floats:
    """The term ``votes``, (C,)."""
    sizes = np.bincount(table.cluster_of_row, minlength=table.num_clusters)
    totals = np.bincount(table.pool_of_row, minlength=len(table.clusters))
    return np.log(sizes / totals[table.pool_of_cluster])


def minus_energies(table: PoolTable, lambda_: float) -> Floats:
    """The term ``minus_energy``, (C,)."""
    scored = ~np.isnan(table.mu)
    energy = total_energies(table.mu, table.penalty, lambda_)[scored]
    return -lowest(energy, table.cluster_of_row[scored], table.num_clusters)


def energy_votes(table: PoolTable, lambda_: float) -> Floats:
    """The term ``energy_vote``, (C,)."""
    scored = ~np.isnan(table.mu)
    return _log_shares(total_energies(table.mu, table.penalty, lambda_)[scored], table.cluster_of_row[scored], table)


def _log_shares(energy: Floats, cluster: Ints, table: PoolTable) -> Floats:
    """log of each cluster's share of its pool's sum exp(-E), at least ``MIN_LOG_SHARE``."""
    pool = table.pool_of_cluster[cluster]
    least = lowest(energy, pool, len(table.clusters))
    mass = np.bincount(cluster, np.exp(least[pool] - energy), table.num_clusters)
    total = np.bincount(table.pool_of_cluster, mass, len(table.clusters))[table.pool_of_cluster]
    scored = np.bincount(cluster, minlength=table.num_clusters) > 0
    share = np.divide(mass, total, out=np.zeros(len(mass)), where=total > 0)
    return np.where(scored, np.log(np.maximum(share, math.exp(MIN_LOG_SHARE))), math.nan)
