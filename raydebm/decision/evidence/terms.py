"""Inputs of evidence: the distinct answers of pools, as columns, and the definition of a term of evidence.

In:   the scored candidates of one or more problems, and a reference with statistics of their authors.
Out:  clusters (distinct answers), and the inputs that terms are measured from.
Does not know: labels, weights, thresholds, Ray, HTTP; the list of terms (``built_in_terms``, ``measuring``).

A cluster contains the candidates with equal answers (``vote_key``). Candidates without text, without an answer, or with
a failed check are in no cluster.

A user module adds its own terms (docs/tutorials/a_term_of_evidence.md):

    add_term(Term(name="finished", words="texts that were not cut off", measure=finished))
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from raydebm.decision.evidence.groups import Floats, Ints, mean, ratio
from raydebm.decision.evidence.reference import Reference
from raydebm.energy import total_energies
from raydebm.errors import ConfigError
from raydebm.records import ScoredCandidate

MAX_Z = 5.0
"""Standardised energies and lengths are clipped to [-5, 5], to limit the effect of an outlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Candidates of a pool with the same answer."""

    key: str
    rows: tuple[int, ...]
    """Indices in the pool."""
    proof: bool | None
    """Same as ``ConstraintReport.proof``. True if any of the candidates is proven right."""


def clusters_of(pool: Sequence[ScoredCandidate]) -> tuple[Cluster, ...]:
    """Group a pool by answer, ordered by key. Independent of the order of the pool."""
    rows: dict[str, list[int]] = {}
    for row, scored in enumerate(pool):
        key = scored.report.vote_key
        if key is not None and math.isfinite(scored.report.penalty) and scored.candidate.text is not None:
            rows.setdefault(key, []).append(row)
    return tuple(
        Cluster(
            key=key,
            rows=tuple(rows[key]),
            proof=_proof([pool[row].report.proof for row in rows[key]]),
        )
        for key in sorted(rows)
    )


def _proof(proofs: Sequence[bool | None]) -> bool | None:
    if True in proofs:
        return True
    return None if None in proofs else False


@dataclass(frozen=True, kw_only=True, eq=False)
class PoolTable:
    """Pools as columns: P pools, C clusters, R candidates in clusters, K adapters, G authors."""

    clusters: tuple[tuple[Cluster, ...], ...]
    """Clusters by pool."""
    authors: tuple[str, ...]
    """Author names by code."""
    pool_of_row: Ints
    cluster_of_row: Ints
    author_of_row: Ints
    place_of_row: Ints
    """Index in the pool."""
    members: Floats
    """Shape (R, K). NaN where an adapter has no energy."""
    penalty: Floats
    """(R,)"""
    length: Floats
    """(R,): log(1 + number of characters)."""
    unparsed: Floats
    """Shape (P,). Share of written candidates that are in no cluster; 0 if none was written."""
    written: Ints
    """Shape (P,). Number of written candidates."""
    candidates: tuple[ScoredCandidate, ...]
    """Candidate of each row, R in total."""
    scores: Mapping[str, Floats] = field(default_factory=dict)
    """Shape (R,) by baseline. NaN without a score."""

    @classmethod
    def of(cls, pools: Sequence[Sequence[ScoredCandidate]]) -> "PoolTable":
        """Group every pool's candidates."""
        codes: dict[str, int] = {}
        clusters = tuple(clusters_of(pool) for pool in pools)
        rows = [
            (pool, index, place)
            for pool, of_pool in enumerate(clusters)
            for index, cluster in enumerate(of_pool)
            for place in cluster.rows
        ]
        offsets = np.concatenate([[0], np.cumsum([len(of_pool) for of_pool in clusters])]).astype(np.intp)
        scored = [pools[pool][place] for pool, _, place in rows]
        energies = [
            () if scored_candidate.energies is None else scored_candidate.energies.members
            for scored_candidate in scored
        ]
        members = np.full((len(rows), max(map(len, energies), default=0)), math.nan)
        for row, values in enumerate(energies):
            members[row, : len(values)] = values
        places = np.array(rows, dtype=np.intp).reshape(len(rows), 3)
        scores = [scored_candidate.evidence_scores for scored_candidate in scored]
        return cls(
            clusters=clusters,
            author_of_row=np.array(
                [codes.setdefault(scored_candidate.candidate.generator, len(codes)) for scored_candidate in scored],
                dtype=np.intp,
            ),
            authors=tuple(codes),
            pool_of_row=places[:, 0],
            cluster_of_row=offsets[places[:, 0]] + places[:, 1],
            place_of_row=places[:, 2],
            members=members,
            penalty=np.array([scored_candidate.report.penalty for scored_candidate in scored], dtype=np.float64),
            length=np.log1p([len(scored_candidate.candidate.text or "") for scored_candidate in scored]),
            unparsed=np.array([_unparsed(pool, of_pool) for pool, of_pool in zip(pools, clusters, strict=True)]),
            written=np.array([_num_written(pool) for pool in pools], dtype=np.intp),
            candidates=tuple(scored),
            scores={
                name: np.array([values.get(name, math.nan) for values in scores], dtype=np.float64)
                for name in sorted({name for values in scores for name in values})
            },
        )

    @cached_property
    def mu(self) -> Floats:
        """Mean over the adapters that have an energy, shape (R,). NaN without any."""
        known = ~np.isnan(self.members)
        counts = known.sum(axis=1)
        totals = np.where(known, self.members, 0.0).sum(axis=1)
        return ratio(totals, counts)

    @cached_property
    def pool_of_cluster(self) -> Ints:
        """Index of each cluster's pool, shape (C,)."""
        return np.repeat(np.arange(len(self.clusters)), [len(cluster) for cluster in self.clusters])

    @cached_property
    def proof(self) -> Floats:
        """1 for proven, 0 for refuted, NaN otherwise. Shape (C,)."""
        proofs = [cluster.proof for clusters in self.clusters for cluster in clusters]
        return np.array([math.nan if proof is None else float(proof) for proof in proofs], dtype=np.float64)

    @property
    def num_clusters(self) -> int:
        """C."""
        return len(self.pool_of_cluster)

    @property
    def num_pools(self) -> int:
        """P."""
        return len(self.clusters)

    @cached_property
    def votes_of_author(self) -> Ints:
        """Number of clustered candidates by the row's author in the row's pool, shape (R,)."""
        key = self.pool_of_row * max(len(self.authors), 1) + self.author_of_row
        _, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
        votes: Ints = counts[inverse].astype(np.intp)
        return votes


_PROOF_ORDER = {True: 0, None: 1, False: 2}


def representatives(table: PoolTable, reference: Reference) -> Ints:
    """Row of the candidate to return for each cluster, shape (C,).

    Proven candidates are preferred and refuted ones are last. Within each group the order is: most skilled author,
    lowest E, lowest mu, lowest E_constraint, earliest pass, smallest id.
    """
    if not table.num_clusters:
        return np.empty(0, dtype=np.intp)
    mu = np.where(np.isnan(table.mu), np.inf, table.mu)
    skill = np.array([reference.author(name).skill for name in table.authors])[table.author_of_row]
    order = np.lexsort(
        (
            np.array([scored.candidate.candidate_id for scored in table.candidates]),
            np.array([scored.candidate.pass_index for scored in table.candidates]),
            table.penalty,
            mu,
            total_energies(mu, table.penalty, reference.lambda_),
            -skill,
            np.array([_PROOF_ORDER[scored.report.proof] for scored in table.candidates]),
            table.cluster_of_row,
        )
    )
    first = np.searchsorted(table.cluster_of_row[order], np.arange(table.num_clusters))
    rows: Ints = order[first]
    return rows


def _num_written(pool: Sequence[ScoredCandidate]) -> int:
    return sum(scored.candidate.text is not None for scored in pool)


def _unparsed(pool: Sequence[ScoredCandidate], clusters: Sequence[Cluster]) -> float:
    written = _num_written(pool)
    return 1 - sum(len(cluster.rows) for cluster in clusters) / written if written else 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class TermInputs:
    """Inputs of terms, each computed once: P pools, C clusters, R candidates in clusters.

    z is a candidate's energy standardised within its author, z_i = (mu_i - center_g) / scale_g.
    """

    table: PoolTable
    reference: Reference
    """Statistics of the authors."""
    skills: Floats | None = None
    """Shape (R,). Log-odds of each row's author. Default: the skills of ``reference``."""

    @cached_property
    def _authors(self) -> Floats:
        """Skill, center, scale, length center and length scale of each row's author, shape (R, 5)."""
        known = [self.reference.author(name) for name in self.table.authors]
        figures = [(of.skill, of.center, of.scale, of.length_center, of.length_scale) for of in known]
        by_row: Floats = np.array(figures).reshape(-1, 5)[self.table.author_of_row]
        return by_row

    @cached_property
    def skill(self) -> Floats:
        """Log-odds that the row's author is right, shape (R,)."""
        return self._authors[:, 0] if self.skills is None else self.skills

    @cached_property
    def voice(self) -> Floats:
        """1 / number of clustered candidates by the row's author in its pool, so that an author's rows sum to 1. Shape
        (R,)."""
        return 1 / self.table.votes_of_author

    @cached_property
    def scored(self) -> Ints:
        """Rows with an energy."""
        return np.flatnonzero(~np.isnan(self.table.mu))

    @cached_property
    def z(self) -> Floats:
        """z of the rows in ``scored``."""
        mu, (_, center, scale, _, _) = self.table.mu[self.scored], self._authors[self.scored].T
        return _cut((mu - center) / scale)

    @cached_property
    def level(self) -> Floats:
        """Mean of z, shape (P,). NaN where nothing was scored."""
        return mean(self.z, self.table.pool_of_row[self.scored], self.table.num_pools)

    @cached_property
    def length(self) -> Floats:
        """Log number of characters, standardised within authors, shape (R,)."""
        _, _, _, center, scale = self._authors.T
        return _cut((self.table.length - center) / scale)

    @cached_property
    def pool_length(self) -> Floats:
        """Mean of ``length``, shape (P,)."""
        return mean(self.length, self.table.pool_of_row, self.table.num_pools)


def _cut(z: Floats) -> Floats:
    inside: Floats = np.clip(z, -MAX_Z, MAX_Z)
    return inside


About = Literal["answer", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A term of evidence, about each distinct answer of a pool or about "none of them is right"."""

    name: str
    words: str
    """Readable description of the term, such as ``share of candidates``."""
    measure: Callable[[TermInputs], Floats]
    """Function that returns bounded values, shape (C,) or, for a term about "none", (P,). NaN means "not measured" and
    is not treated as 0."""
    about: About = "answer"


ADDED_TERMS: dict[str, Term] = {}
"""Terms added by user modules, by name."""


def add_term(term: Term) -> None:
    """Add a term. The posterior then fits a weight for it, with a normal prior around 0.

    Raises:
        ConfigError: another term with this name exists.
    """
    if ADDED_TERMS.setdefault(term.name, term) is not term:
        raise ConfigError(f"there is a term of evidence {term.name!r} already; choose another name")
