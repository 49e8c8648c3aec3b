"""Table of pools: candidates as rows, pool after pool, with their answers, energies, labels and scores.

Selectors, profiles, evidence, metrics and studies are functions of this table. It is built once, from live candidates
(``PoolTable.of``) or from a run's tables (``pipeline.pools``).

A cluster contains the candidates of a pool with equal answers (``vote_key``). Candidates without an answer, or whose
checks could not be completed, are in no cluster. Requests without text are listed separately (``failed``).

Shapes: P pools, R rows, C clusters of all pools, K adapters, G authors, N rows of the largest pool.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydebm.config.scorer import POSITIVE_FRAC
from raydebm.records import Label, Problem, Reasoning, ScoredCandidate, Verdict, total_energies

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]


def lowest(values: Floats, groups: Ints, count: int) -> Floats:
    """Minimum per group; NaN for a group without a value."""
    minima = np.full(count, math.inf)
    np.minimum.at(minima, groups, values)
    return np.where(np.isinf(minima), math.nan, minima)


def mean(values: Floats, groups: Ints, count: int) -> Floats:
    """Mean per group; NaN for a group without a value."""
    sizes = np.bincount(groups, minlength=count)
    return ratio(np.bincount(groups, values, count), sizes)


def ratio(top: NDArray[Any], bottom: NDArray[Any]) -> Floats:
    """Quotients of two arrays of one shape; NaN where the divisor is not positive."""
    quotients: Floats = np.divide(top, bottom, out=np.full(top.shape, math.nan), where=bottom > 0)
    return quotients


def sigmoid(log_odds: Floats) -> Floats:
    """Elementwise probabilities of log-odds."""
    probabilities: Floats = 1 / (1 + np.exp(-np.clip(log_odds, -700, 700)))
    return probabilities


Scores = Mapping[str, Mapping[str, float | None]]
"""Scores of baselines (reward models, judges): name -> candidate id -> score, higher is better.

None, NaN or a missing entry means that the candidate was not scored.
"""
SHUFFLE_SEED = 42
"""Seed for shuffling the candidates of a run's pool, so that their order does not reveal their generators."""
TRUNCATED = ("length", "max_tokens")
"""Finish reasons of a truncated text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Candidates of a pool with the same answer."""

    key: str
    rows: tuple[int, ...]
    """Indices in the pool."""
    proof: bool | None
    """True if any candidate is proven right, False if all are proven wrong, else None."""


def clusters_of(pool: Sequence[ScoredCandidate]) -> tuple[Cluster, ...]:
    """Group a pool by answer, ordered by key. Independent of the order of the pool."""
    rows: dict[str, list[int]] = {}
    for row, scored in enumerate(pool):
        key = scored.report.vote_key
        if key is not None and math.isfinite(scored.report.penalty) and scored.candidate.text is not None:
            rows.setdefault(key, []).append(row)
    return tuple(
        Cluster(key=key, rows=tuple(rows[key]), proof=_proof([pool[row].report.proof for row in rows[key]]))
        for key in sorted(rows)
    )


def _proof(proofs: Sequence[bool | None]) -> bool | None:
    if True in proofs:
        return True
    return None if None in proofs else False


@dataclass(frozen=True, kw_only=True, eq=False)
class PoolTable:
    """Candidates of P pools. Rows of a pool are adjacent and ordered by candidate id."""

    problems: tuple[Problem, ...]
    """Problem of each pool. Empty if unknown."""
    clusters: tuple[tuple[Cluster, ...], ...]
    """Clusters by pool."""
    authors: tuple[str, ...]
    """Sorted names of the generators. ``author_of_row`` indexes them."""
    written: Ints
    """Number of candidates with text in each pool, shape (P,)."""
    kinds: tuple[str, ...]
    """Kind of question by pool. Empty text if unknown."""
    candidates: tuple[ScoredCandidate, ...]
    """Candidate of each row, R in total."""
    pool_of_row: Ints
    cluster_of_row: Ints
    """Index of the row's cluster among those of all pools; -1 without one."""
    author_of_row: Ints
    place_of_row: Ints
    """Index of the candidate in its pool as passed to ``of``."""
    members: Floats
    """Energies, shape (R, K). NaN where an adapter has none."""
    penalty: Floats
    """E_constraint, shape (R,). +inf if the candidate did not parse."""
    correct: Floats
    """1 for correct, 0 for wrong, NaN for unlabelled, shape (R,)."""
    violation: Floats
    """Violation score in [0, 1], lower is better, shape (R,). NaN without one."""
    field_verdicts: NDArray[np.object_]
    """Verdicts on the row's fields (``Label.fields``), shape (R,). None without any."""
    scores: Mapping[str, Floats] = field(default_factory=dict)
    """Scores by baseline, each of shape (R,), higher is better. NaN if absent."""
    dimensions: Mapping[str, Floats] = field(default_factory=dict)
    """Values by part of the violation score, each of shape (R,), lower is better. NaN if unknown."""
    failed: tuple[tuple[int, ScoredCandidate], ...] = ()
    """Requests without text, each with the index of its pool. They are counted and never selected."""
    greedy: "PoolTable | None" = None
    """Samples at temperature 0 of the same problems, a baseline. They do not belong to the pools."""

    @classmethod
    def of(
        cls,
        pools: Sequence[Sequence[ScoredCandidate]],
        *,
        problems: Iterable[Problem] = (),
        labels: Mapping[str, Label] | None = None,
        scores: Scores | None = None,
        greedy: Sequence[Sequence[ScoredCandidate]] | None = None,
    ) -> "PoolTable":
        """Build the table of these pools.

        Args:
            problems: problem of each pool. Default: unknown.
            labels: labels by candidate id. Candidates without a label are unlabelled.
            scores: scores by baseline and candidate id.
            greedy: samples at temperature 0 of each problem.
        """
        problems, labels = tuple(problems), labels or {}
        clusters, rows, cluster_of_row, first = [], [], list[int](), 0
        for index, pool in enumerate(pools):
            clusters.append(clusters_of(pool))
            own = [-1] * len(pool)
            for number, cluster in enumerate(clusters[-1], start=first):
                for place in cluster.rows:
                    own[place] = number
            first += len(clusters[-1])
            written = [place for place, scored in enumerate(pool) if scored.candidate.text is not None]
            written.sort(key=lambda place: pool[place].candidate.candidate_id)
            rows += [(index, place) for place in written]
            cluster_of_row += [own[place] for place in written]
        candidates = tuple(pools[index][place] for index, place in rows)
        places = np.array(rows, dtype=np.intp).reshape(len(rows), 2)
        authors = tuple(sorted({scored.candidate.generator for scored in candidates}))
        codes = {name: code for code, name in enumerate(authors)}
        ids = [scored.candidate.candidate_id for scored in candidates]
        own_labels = [labels.get(name) for name in ids] if labels else [None] * len(ids)
        parts = dict.fromkeys(part for label in own_labels if label is not None for part in label.parts)
        return cls(
            problems=problems,
            clusters=tuple(clusters),
            authors=authors,
            written=np.bincount(places[:, 0], minlength=len(pools)),
            kinds=tuple(next((scored.kind for scored in pool if scored.kind), "") for pool in pools),
            candidates=candidates,
            pool_of_row=places[:, 0],
            cluster_of_row=np.array(cluster_of_row, dtype=np.intp),
            author_of_row=np.array([codes[scored.candidate.generator] for scored in candidates], dtype=np.intp),
            place_of_row=places[:, 1],
            members=_members(candidates),
            penalty=_column(scored.report.penalty for scored in candidates),
            correct=_column(map(correct_of, own_labels)),
            violation=_column(map(violation_of, own_labels)),
            field_verdicts=_objects(None if label is None else label.fields or None for label in own_labels),
            scores={name: _column(map(by_id.get, ids)) for name, by_id in (scores or {}).items()},
            dimensions={
                name: _column(None if label is None else label.parts.get(name) for label in own_labels)
                for name in parts
            },
            failed=tuple(
                (index, scored) for index, pool in enumerate(pools) for scored in pool if scored.candidate.text is None
            ),
            greedy=None if greedy is None else cls.of(greedy, problems=problems, labels=labels),
        )

    # ---- rows --------------------------------------------------------------------------------------------------------

    def kept(self, rows: Bools) -> "PoolTable":
        """The same pools with some of their rows, without failed requests and greedy samples.

        Clusters keep their numbers, even if they lose all their rows.
        """
        return replace(self, failed=(), greedy=None, **self._taken(np.flatnonzero(rows)))

    def of_pools(self, pools: Sequence[int] | Ints) -> "PoolTable":
        """Pools at these indices, in order, without failed requests and greedy samples."""
        chosen = [*map(int, pools)]
        rows = np.concatenate([np.zeros(0, dtype=np.intp), *(np.arange(*self.offsets[[p, p + 1]]) for p in chosen)])
        taken = self._taken(rows)
        authors, author_of_row = np.unique(self.author_of_row[rows], return_inverse=True)
        new_pools = np.repeat(np.arange(len(chosen)), self.sizes[chosen])
        clusters = tuple(self.clusters[pool] for pool in chosen)
        first = np.cumsum([0, *map(len, clusters)])[:-1]
        local = self.answer[rows]
        return replace(
            self,
            problems=tuple(self.problems[pool] for pool in chosen) if self.problems else (),
            clusters=clusters,
            authors=tuple(self.authors[code] for code in authors),
            written=self.written[chosen],
            kinds=tuple(self.kinds[pool] for pool in chosen),
            failed=(),
            greedy=None,
            **{
                **taken,
                "author_of_row": author_of_row,
                "pool_of_row": new_pools,
                "cluster_of_row": np.where(local >= 0, first[new_pools] + local, -1) if len(rows) else local,
            },
        )

    def _taken(self, rows: Ints) -> dict[str, Any]:
        changed: dict[str, Any] = {"candidates": tuple(self.candidates[row] for row in rows)}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, np.ndarray) and each.name != "written":
                changed[each.name] = value[rows]
            elif isinstance(value, Mapping):
                changed[each.name] = {name: column[rows] for name, column in value.items()}
        return changed

    @cached_property
    def answered(self) -> "PoolTable":
        """The table of the rows in clusters, from which evidence is measured."""
        rows = self.cluster_of_row >= 0
        return self if rows.all() else self.kept(rows)

    def with_worth(self) -> "PoolTable":
        """The table of the pools with a candidate of known worth, on which posteriors are fitted."""
        return self.of_pools(np.flatnonzero(self.any(~np.isnan(self.worth))))

    def with_members(self, members: Mapping[str, Sequence[float]]) -> "PoolTable":
        """The same rows with other energies, given by candidate id. A candidate without an entry is unscored."""
        size = max((len(values) for values in members.values()), default=0)
        table = np.full((len(self.candidates), size), math.nan)
        for row, scored in enumerate(self.candidates):
            if (values := members.get(scored.candidate.candidate_id)) is not None:
                table[row] = values
        return replace(self, members=table)

    def with_tolerance(self, tolerance: float) -> "PoolTable":
        """The same rows, correct if their violation score is at most ``tolerance``.

        For tasks with violation scores, where candidates without any violation may be too rare. Candidates without a
        violation score become unlabelled.
        """
        known = ~np.isnan(self.violation)
        return replace(self, correct=np.where(known, self.violation <= tolerance, math.nan))

    def with_trained_labels(self) -> "PoolTable":
        """The same rows with the labels used in training (``pairs.build_pairs``).

        If the task has violation scores, a candidate is correct if its score is in the lowest ``POSITIVE_FRAC`` of its
        pool, because candidates without any violation may be too rare. The scorer was trained to separate these
        classes, so its energies are judged by them. Pools without violation scores are unchanged.
        """
        known = ~np.isnan(self.violation)
        best = np.where(known, self.lowest_share(POSITIVE_FRAC), math.nan)
        return replace(self, correct=np.where(self.any(known)[self.pool_of_row], best, self.correct))

    def lowest_share(self, share: float) -> Bools:
        """Mask of each pool's lowest violation scores: this share of them, at least one, plus ties. Shape (R,)."""
        known = np.flatnonzero(~np.isnan(self.violation))
        ordered = known[np.lexsort((self.violation[known], self.pool_of_row[known]))]
        counts = np.bincount(self.pool_of_row[known], minlength=self.num_pools)
        last = np.cumsum(counts) - counts + np.maximum(np.round(share * counts).astype(int), 1) - 1
        limit = np.full(self.num_pools, -math.inf)
        limit[counts > 0] = self.violation[ordered[last[counts > 0]]]
        return self.violation <= limit[self.pool_of_row]

    # ---- sizes and derived columns -----------------------------------------------------------------------------------

    @property
    def num_pools(self) -> int:
        """P."""
        return len(self.clusters)

    @property
    def num_members(self) -> int:
        """K, the number of adapters."""
        return int(self.members.shape[1])

    @property
    def num_clusters(self) -> int:
        """C."""
        return len(self.pool_of_cluster)

    @cached_property
    def sizes(self) -> Ints:
        """Rows per pool, shape (P,)."""
        return np.bincount(self.pool_of_row, minlength=self.num_pools)

    @cached_property
    def offsets(self) -> Ints:
        """First row of each pool, with R at the end, shape (P + 1,)."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.intp)

    @cached_property
    def kind_of_pool(self) -> tuple[tuple[str, ...], Ints]:
        """Distinct kinds in order of appearance, and the index of each pool's kind among them, shape (P,)."""
        codes: dict[str, int] = {}
        of_pool = [codes.setdefault(kind, len(codes)) for kind in self.kinds]
        return tuple(codes), np.array(of_pool, dtype=np.intp)

    @cached_property
    def pool_of_cluster(self) -> Ints:
        """Index of each cluster's pool, shape (C,)."""
        return np.repeat(np.arange(self.num_pools), [len(clusters) for clusters in self.clusters])

    @cached_property
    def proof(self) -> Floats:
        """1 for proven, 0 for refuted, NaN otherwise. Shape (C,)."""
        return _column(cluster.proof for clusters in self.clusters for cluster in clusters)

    @cached_property
    def answer(self) -> Ints:
        """Number of the row's answer within its pool, shape (R,); -1 without one."""
        first = np.cumsum([0, *map(len, self.clusters)])[:-1]
        return np.where(self.cluster_of_row >= 0, self.cluster_of_row - first[self.pool_of_row], -1)

    @cached_property
    def unparsed(self) -> Floats:
        """Share of the candidates with text that are in no cluster; 0 if no candidate has text. Shape (P,)."""
        return np.where(self.written > 0, 1 - self.count(self.cluster_of_row >= 0) / np.maximum(self.written, 1), 0.0)

    @cached_property
    def votes_of_author(self) -> Ints:
        """Number of rows by the row's author in the row's pool, shape (R,)."""
        key = self.pool_of_row * max(len(self.authors), 1) + self.author_of_row
        _, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
        votes: Ints = counts[inverse].astype(np.intp)
        return votes

    def is_by(self, *generators: str) -> Bools:
        """Whether one of these generators wrote the candidate, shape (R,)."""
        return np.isin(self.author_of_row, [code for code, name in enumerate(self.authors) if name in generators])

    @property
    def texts(self) -> dict[str, tuple[str, str]]:
        """(problem, text) by candidate id."""
        pairs = zip(self.candidates, self.pool_of_row, strict=True)
        return {
            scored.candidate.candidate_id: (self.problems[pool].prompt, scored.candidate.text or "")
            for scored, pool in pairs
        }

    def as_scored(self, reasoning: Reasoning) -> "PoolTable":
        """The table with each text replaced by the scorer's input (``Candidate.as_scored``)."""
        candidates = (replace(scored, candidate=scored.candidate.as_scored(reasoning)) for scored in self.candidates)
        return self if reasoning == "answer" else replace(self, candidates=tuple(candidates))

    @cached_property
    def length(self) -> Floats:
        """Characters of the text, shape (R,)."""
        return _column(len(scored.candidate.text or "") for scored in self.candidates)

    @cached_property
    def tokens(self) -> Floats:
        """Completion tokens, shape (R,). NaN if unknown."""
        return _column(scored.candidate.completion_tokens for scored in self.candidates)

    @cached_property
    def cost_usd(self) -> Floats:
        """Cost in US dollars, shape (R,). NaN if unknown."""
        return _column(scored.candidate.cost_usd for scored in self.candidates)

    @cached_property
    def cut_off(self) -> Floats:
        """1 if the text was truncated, else 0, shape (R,). NaN without a finish reason."""
        reasons = (scored.candidate.finish_reason for scored in self.candidates)
        return _column(None if reason is None else reason in TRUNCATED for reason in reasons)

    @cached_property
    def parsed(self) -> Bools:
        """Whether an answer was found in the text, shape (R,)."""
        return np.array([scored.report.parsed for scored in self.candidates], dtype=np.bool_)

    @cached_property
    def broken(self) -> Mapping[str, Floats]:
        """Sums of penalties by constraint, each of shape (R,). NaN if the constraint is satisfied."""
        columns: dict[str, Floats] = {}
        for row, scored in enumerate(self.candidates):
            for violation in scored.report.violations:
                column = columns.setdefault(violation.constraint, np.full(len(self.candidates), math.nan))
                column[row] = violation.penalty + np.nan_to_num(column[row])
        return dict(sorted(columns.items()))

    @cached_property
    def evidence_scores(self) -> Mapping[str, Floats]:
        """Scores that are evidence, by name, each of shape (R,). NaN without a score."""
        values = [scored.evidence_scores for scored in self.candidates]
        names = sorted({name for own in values for name in own})
        return {name: _column(own.get(name) for own in values) for name in names}

    # ---- energies ----------------------------------------------------------------------------------------------------

    @cached_property
    def mu(self) -> Floats:
        """Mean over the adapters that have an energy, shape (R,). NaN without any."""
        known = ~np.isnan(self.members)
        return ratio(np.where(known, self.members, 0.0).sum(axis=1), known.sum(axis=1))

    @cached_property
    def sigma(self) -> Floats:
        """Population standard deviation over the adapters, shape (R,). NaN if an adapter has no energy."""
        return self.members.std(axis=1) if self.num_members else np.full(len(self.members), math.nan)

    def of_adapters(self, adapters: Sequence[int]) -> "PoolTable":
        """The same rows with only these adapters' energies."""
        return replace(self, members=self.members[:, list(adapters)])

    def energy(self, lambda_: float) -> Floats:
        """E = mu + lambda * E_constraint, shape (R,). +inf if not parsed or not scored."""
        return np.where(np.isnan(self.mu), math.inf, total_energies(self.mu, self.penalty, lambda_))

    def energy_votes(self, lambda_: float) -> Floats:
        """exp(-E) relative to the pool's lowest E, so that it cannot overflow, shape (R,). 0 without a finite E."""
        energy = self.energy(lambda_)
        usable = np.isfinite(energy)
        above = np.full(len(energy), math.inf)
        np.subtract(energy, self.least(energy)[self.pool_of_row], where=usable, out=above)
        votes: Floats = np.exp(-above)
        return votes

    def select(self, lambda_: float) -> Ints:
        """Row of the lowest energy in each pool, shape (P,). -1 if nothing can be selected.

        Ties go to the lower mu, then to the smaller id, as in ``decision.rules.select``.
        """
        return self.lowest(self.energy(lambda_), self.mu)

    def lowest(self, energy: Floats, ties: Floats) -> Ints:
        """Row of the lowest finite energy in each pool, shape (P,). Ties go to the lower ``ties``, then to the id."""
        chosen = np.isfinite(energy)
        for values in (energy, ties):
            best = np.where(chosen, values, math.inf)
            chosen &= best == self.least(best)[self.pool_of_row]
        rows = np.flatnonzero(chosen)[::-1]
        picked = np.full(self.num_pools, -1, dtype=np.intp)
        picked[self.pool_of_row[rows]] = rows
        return picked

    # ---- values by pool ----------------------------------------------------------------------------------------------

    def total(self, values: Floats | Bools) -> Floats:
        """Sum over each pool, shape (P,)."""
        return np.bincount(self.pool_of_row, values, self.num_pools).astype(np.float64)

    def count(self, rows: Bools) -> Ints:
        """Number of these rows in each pool, shape (P,)."""
        return np.bincount(self.pool_of_row[rows], minlength=self.num_pools)

    def any(self, rows: Bools) -> Bools:
        """Whether a pool has one of these rows, shape (P,)."""
        return self.count(rows) > 0

    def least(self, values: Floats | Ints) -> Floats:
        """Minimum over each pool, shape (P,). +inf without rows."""
        least = np.full(self.num_pools, math.inf)
        has_rows = self.sizes > 0
        if has_rows.any():
            least[has_rows] = np.minimum.reduceat(values, self.offsets[:-1][has_rows])
        return least

    def mean_of(self, values: Floats, within: Bools | None = None) -> Floats:
        """Mean over the rows with a value, shape (P,). NaN without any."""
        known = ~np.isnan(values) if within is None else within & ~np.isnan(values)
        return ratio(self.total(np.where(known, values, 0.0)), self.count(known))

    def by_chance(self, within: Bools | None = None) -> Floats:
        """Share of correct among labelled candidates, shape (P,). NaN without any."""
        return self.mean_of(self.correct, within)

    def by_cluster(self, values: Floats | Bools) -> Floats:
        """Sum over each cluster, shape (C,)."""
        rows = self.cluster_of_row >= 0
        return np.bincount(self.cluster_of_row[rows], values[rows], self.num_clusters).astype(np.float64)

    def of_cluster(self, values: NDArray[Any], empty: Any) -> NDArray[Any]:
        """Value of each row's cluster, shape (R,); ``empty`` without one."""
        return np.append(values, empty)[self.cluster_of_row]

    def grid(self, values: NDArray[Any], empty: Any = math.nan) -> NDArray[Any]:
        """A column as an array of shape (P, N, ...), in which rows beyond a pool's size are ``empty``."""
        shape = (self.num_pools, max(int(self.sizes.max(initial=0)), 1))
        grid = np.full((*shape, *values.shape[1:]), empty, dtype=values.dtype)
        grid[self.pool_of_row, np.arange(len(values)) - self.offsets[self.pool_of_row]] = values
        return grid

    def rows_of(self, pool: int) -> Ints:
        """Rows of a pool in the order in which its candidates were given."""
        return self._as_given[self.offsets[pool] : self.offsets[pool + 1]]

    @cached_property
    def _as_given(self) -> Ints:
        return np.lexsort((self.place_of_row, self.pool_of_row))

    # ---- worth -------------------------------------------------------------------------------------------------------

    @cached_property
    def worth(self) -> Floats:
        """1 if right, 0 if wrong, or 1 minus the violation score if labels have scores. NaN if unknown. Shape (R,)."""
        return 1 - self.violation if self.has_violations else self.correct

    @cached_property
    def cluster_worth(self) -> Floats:
        """Mean worth of each cluster's labelled candidates, shape (C,). NaN without labels."""
        known = ~np.isnan(self.worth)
        return ratio(self.by_cluster(np.where(known, self.worth, 0.0)), self.by_cluster(known))

    @cached_property
    def worth_by_author(self) -> tuple[Floats, Floats]:
        """Summed worth and number of each pool's labelled candidates by author, each of shape (P, G)."""
        rows = self._as_given[~np.isnan(self.worth[self._as_given])]
        cells, shape = (self.pool_of_row[rows], self.author_of_row[rows]), (self.num_pools, len(self.authors))
        worth, count = np.zeros(shape), np.zeros(shape)
        np.add.at(worth, cells, self.worth[rows])
        np.add.at(count, cells, 1.0)
        return worth, count

    # ---- labels of picks ---------------------------------------------------------------------------------------------

    @cached_property
    def labelled(self) -> Bools:
        """Whether the pool has at least one label, shape (P,)."""
        return self.any(~np.isnan(self.correct))

    @property
    def has_violations(self) -> bool:
        """Whether labels have violation scores. Selectors are then compared by the mean violation."""
        return not np.isnan(self.violation).all()

    def at(self, values: Floats | Bools, picked: Ints) -> Floats:
        """Value at each pool's pick, shape (P,); NaN where there is no pick."""
        return np.append(values.astype(np.float64), math.nan)[picked]

    def correct_at(self, picked: Ints) -> Floats:
        """Correctness of each pick, shape (P,). Without a pick: 0 in a labelled pool. NaN if unlabelled."""
        return np.where(picked >= 0, self.at(self.correct, picked), self.correct_of_nothing())

    def violation_at(self, picked: Ints) -> Floats:
        """Violation score of each pick, shape (P,). Without a pick: 1 in a pool with violation scores."""
        return np.where(picked >= 0, self.at(self.violation, picked), self.violation_of_nothing())

    def correct_of_nothing(self) -> Floats:
        """Correctness of no answer, shape (P,): 0 in a labelled pool, else NaN."""
        return np.where(self.labelled, 0.0, math.nan)

    def violation_of_nothing(self) -> Floats:
        """Violation of no answer, shape (P,): 1 in a pool with violation scores, else NaN."""
        return np.where(self.any(~np.isnan(self.violation)), 1.0, math.nan)


def on_common_problems(tables: Sequence[PoolTable]) -> list[PoolTable]:
    """Restrict tables to the problems that all of them have, in the order of the first table."""
    places = [{problem.problem_id: place for place, problem in enumerate(table.problems)} for table in tables]
    common = [name for name in places[0] if all(name in own for own in places)]
    return [table.of_pools([own[name] for name in common]) for table, own in zip(tables, places, strict=True)]


def _column(values: Iterable[float | None]) -> Floats:
    return np.array(list(values), dtype=np.float64)  # None becomes NaN


def _objects(values: Iterable[object]) -> NDArray[np.object_]:
    values = list(values)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _members(candidates: Sequence[ScoredCandidate]) -> Floats:
    energies = [() if scored.energies is None else scored.energies.members for scored in candidates]
    members = np.full((len(candidates), max(map(len, energies), default=0)), math.nan)
    for row, values in enumerate(energies):
        members[row, : len(values)] = values
    return members


def correct_of(label: Label | None) -> float:
    """1 for correct, 0 for wrong, NaN for unlabelled."""
    if label is None or label.verdict is Verdict.UNLABELED:
        return math.nan
    return float(label.verdict is Verdict.CORRECT)


def violation_of(label: Label | None) -> float:
    """Violation score of a label; NaN if it has none."""
    return math.nan if label is None or label.violation_score is None else label.violation_score
