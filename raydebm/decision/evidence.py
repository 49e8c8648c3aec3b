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
``skill``        sum over authors of f_ga logit q_g, q_g being the author's skill. Beside ``authors``, whose weight
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
===============  ======================================================================================

Terms for "none of them":

==============  ======================================================================================
``none``        1
``pool_energy`` mean of z over the pool: high when all answers look wrong
``pool_length`` mean over the pool of the standardised log number of characters: high where all write more than usual
``unparsed``    share of written candidates without an answer
``disagreement`` log of the number of clusters
``sigma``       spread over members of the lead of the best cluster (paper's sigma, taken on the decision)
==============  ======================================================================================

A term that was not measured is NaN, which adds nothing, and is never taken for 0.

Sources: optimal aggregation of answers and verifier scores, arXiv 2510.13918; one coin per author, Dawid and Skene
(1979).
"""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydebm.decision.reference import Author, Reference
from raydebm.energy import total_energies, total_energy
from raydebm.records import ScoredCandidate

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

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
    """Shape (C, len(TERMS)), the clusters of all pools after each other; NaN where not measured."""
    context: Floats
    """Shape (P, len(CONTEXT)); NaN where not measured."""


def evidence_of(table: PoolTable, reference: Reference, *, skills: Floats | None = None) -> Evidence:
    """Measure every term of every cluster.

    Args:
        table: the pools.
        reference: what is known about authors.
        skills: log-odds of each row's author, shape (R,), in place of the reference's.
    """
    known = [reference.author(name) for name in table.authors]
    per_author = np.array([astuple(author) for author in known]).reshape(len(known), len(fields(Author)))
    skill, center, scale, length_center, length_scale = per_author[table.author_of_row].T
    count, cluster, pool = table.num_clusters, table.cluster_of_row, table.pool_of_row
    voices = 1 / table.votes_of_author
    scored = ~np.isnan(table.mu)
    z = np.clip((table.mu - center) / scale, -MAX_Z, MAX_Z)
    length = np.clip((table.length - length_center) / length_scale, -MAX_Z, MAX_Z)
    pool_length = _mean(length, pool, len(table.clusters))
    level = _mean(z[scored], pool[scored], len(table.clusters))
    cluster_level = level[table.pool_of_cluster]
    wins, spread = _by_member(table)
    columns = {
        "votes": log_votes(table),
        "authors": np.bincount(cluster, voices, count),
        "skill": np.bincount(cluster, voices * (skill if skills is None else skills), count),
        "energy": cluster_level - _lowest(z[scored], cluster[scored], count),
        "mean_energy": cluster_level - _mean(z[scored], cluster[scored], count),
        "members": wins,
        "penalty": -np.minimum(_lowest(table.penalty, cluster, count), MAX_PENALTY),
        "length": pool_length[table.pool_of_cluster] - _mean(length, cluster, count),
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
    return Evidence(terms=np.column_stack([columns[name] for name in TERMS]), context=context)


def log_votes(table: PoolTable) -> Floats:
    """The term ``votes``, (C,)."""
    sizes = np.bincount(table.cluster_of_row, minlength=table.num_clusters)
    totals = np.bincount(table.pool_of_row, minlength=len(table.clusters))
    return np.log(sizes / totals[table.pool_of_cluster])


def minus_energies(table: PoolTable, lambda_: float) -> Floats:
    """The term ``minus_energy``, (C,)."""
    scored = ~np.isnan(table.mu)
    energy = total_energies(table.mu, table.penalty, lambda_)[scored]
    return -_lowest(energy, table.cluster_of_row[scored], table.num_clusters)


def energy_votes(table: PoolTable, lambda_: float) -> Floats:
    """The term ``energy_vote``, (C,)."""
    scored = ~np.isnan(table.mu)
    return _log_shares(total_energies(table.mu, table.penalty, lambda_)[scored], table.cluster_of_row[scored], table)


def _lowest(values: Floats, groups: Ints, count: int) -> Floats:
    """Minimum per group; NaN for a group without a value."""
    found = np.full(count, math.inf)
    np.minimum.at(found, groups, values)
    return np.where(np.isinf(found), math.nan, found)


def _mean(values: Floats, groups: Ints, count: int) -> Floats:
    """Mean per group; NaN for a group without a value."""
    sizes = np.bincount(groups, minlength=count)
    return ratio(np.bincount(groups, values, count), sizes)


def ratio(top: NDArray[Any], bottom: NDArray[Any]) -> Floats:
    """Quotients of two vectors; NaN where the divisor is 0."""
    found: Floats = np.divide(top, bottom, out=np.full(len(top), math.nan), where=bottom > 0)
    return found


def _log_shares(energy: Floats, cluster: Ints, table: PoolTable) -> Floats:
    """log of each cluster's share of its pool's sum exp(-E), at least ``MIN_LOG_SHARE``."""
    pool = table.pool_of_cluster[cluster]
    lowest = _lowest(energy, pool, len(table.clusters))
    mass = np.bincount(cluster, np.exp(lowest[pool] - energy), table.num_clusters)
    total = np.bincount(table.pool_of_cluster, mass, len(table.clusters))[table.pool_of_cluster]
    scored = np.bincount(cluster, minlength=table.num_clusters) > 0
    share = np.divide(mass, total, out=np.zeros(len(mass)), where=total > 0)
    return np.where(scored, np.log(np.maximum(share, math.exp(MIN_LOG_SHARE))), math.nan)


def _by_member(table: PoolTable) -> tuple[Floats, Floats]:
    """(share of members whose lowest energy is in the cluster, ties shared; spread over members of the best cluster's
    lead), shapes (C,) and (P,); NaN where nothing was scored."""
    count, num_pools, owner = table.num_clusters, len(table.clusters), table.pool_of_cluster
    best = np.full((count, table.members.shape[1]), math.inf)
    np.minimum.at(best, table.cluster_of_row, np.where(np.isnan(table.members), math.inf, table.members))
    of_pool = np.full((num_pools, table.members.shape[1]), math.inf)
    np.minimum.at(of_pool, owner, best)
    is_member = np.isfinite(of_pool)
    is_lowest = (best == of_pool[owner]) & is_member[owner]
    ties = np.zeros_like(of_pool)
    np.add.at(ties, owner, is_lowest)
    voting = is_member.sum(axis=1)[owner]
    won = np.divide(is_lowest, ties[owner], out=np.zeros_like(best), where=ties[owner] > 0).sum(axis=1)
    wins = np.divide(won, voting, out=np.full(count, math.nan), where=(voting > 0) & np.isfinite(best).any(axis=1))
    return wins, _lead_spread(best, of_pool, owner)


def _lead_spread(best: Floats, of_pool: Floats, owner: Ints) -> Floats:
    """Standard deviation over members (ddof=0) of: lowest energy in other clusters minus lowest in the best cluster,
    which is the one with the lowest mean over members. Shape (P,); NaN with fewer than two scored clusters or members,
    for one member has no spread."""
    spread = np.full(len(of_pool), math.nan)
    if not best.size:
        return spread
    is_member = np.isfinite(of_pool)[owner]
    usable = (np.isfinite(best) | ~is_member).all(axis=1) & is_member.any(axis=1)
    level = np.where(is_member, best, 0.0).sum(axis=1)
    level[~usable] = math.inf
    lowest = np.full(len(of_pool), math.inf)
    np.minimum.at(lowest, owner, level)
    first = np.full(len(of_pool), len(best))
    winners = np.flatnonzero(usable & (level == lowest[owner]))
    np.minimum.at(first, owner[winners], winners)
    others = best.copy()
    others[first[first < len(best)]] = math.inf
    rival = np.full_like(of_pool, math.inf)
    np.minimum.at(rival, owner, others)
    pools = np.flatnonzero(first < len(best))
    members = np.isfinite(of_pool[pools]) & np.isfinite(rival[pools])
    counts = members.sum(axis=1)
    lead = np.subtract(rival[pools], best[first[pools]], out=np.zeros(members.shape), where=members)
    center = ratio(lead.sum(axis=1), counts)[:, None]
    variance = ratio((np.where(members, lead - center, 0.0) ** 2).sum(axis=1), counts)
    spread[pools] = np.where(counts > 1, np.sqrt(variance), math.nan)
    return spread
