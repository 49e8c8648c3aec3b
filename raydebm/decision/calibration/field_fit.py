"""Fit the probability of fields on labelled fields, and certify a threshold for them.

Weights maximise the likelihood of "this value is right", in which every problem counts once, with a normal prior around
the weights of ``fields.UNFITTED`` (``likelihoods``). Then slope, bias and bias by kind of field are fitted on
cross-fitted predictions for the selected answers. A problem's own candidates are excluded from its authors' skills.

The loss of a problem at a threshold is the share of wrong fields among those that are not flagged: fields of one
problem are not independent, so the guarantee is tested over problems (``guarantee.certify``).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from raydebm.decision.evidence.fitting import KIND_PRIOR, SKILL_PRIOR, CrossFit
from raydebm.decision.evidence.likelihoods import Design, independent, maximum
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.evidence.terms import representatives
from raydebm.decision.fields import TERMS, UNFITTED, FieldEvidence, FieldModel, field_evidence, terms_of
from raydebm.decision.guarantee.guarantee import Guarantee, certify
from raydebm.decision.table import Bools, Floats, Ints, PoolTable, sigmoid
from raydebm.tasks.fields import kind_of_field

MAX_KINDS = 40
MIN_PROBLEMS = 10
"""Minimum number of problems with a kind of field for a bias and skills of its own."""
PRIOR = np.array([UNFITTED.weights.get(term, 0.0) for term in TERMS])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FieldFit:
    """A fitted model, and cross-fitted predictions for the S labelled fields of the selected answers."""

    model: FieldModel
    owner: Ints
    """Problem of each field, shape (S,)."""
    paths: tuple[str, ...]
    confidence: Floats
    """(S,)"""
    marginal: Floats
    """Probability without a fitted model, shape (S,)."""
    share: Floats
    """Smoothed share of the candidates with the value, shape (S,)."""
    right: Floats
    """1 or 0, shape (S,)."""

    def losses(self, tau: float) -> tuple[Floats, Floats]:
        """Confidence and loss of each problem with labelled fields. The confidence is +inf if a field reaches the
        threshold, else -inf. The loss is the share of wrong fields among those that reach it, 0 if none does."""
        shown = self.confidence >= tau
        problems, owner = np.unique(self.owner, return_inverse=True)
        count = np.bincount(owner[shown], minlength=len(problems))
        wrong = np.bincount(owner[shown], 1 - self.right[shown], len(problems))
        return np.where(count > 0, math.inf, -math.inf), wrong / np.maximum(count, 1)

    def certify(self, max_error: float, confidence: float) -> Guarantee:
        """Find the lowest threshold with a guarantee on the error among the fields that are not flagged."""
        return certify(self.losses, self.confidence, max_error=max_error, confidence=confidence, binary=False)

    def to_json(self) -> dict[str, Any]:
        """Predictions with their verdicts, as in ``calibration/decision.json``."""
        names = ("confidence", "marginal", "right")
        return {"paths": list(self.paths), **{name: getattr(self, name).tolist() for name in names}}


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """All values of all fields of P problems as rows: R rows, G authors, K kinds of field, of which 0 is any other."""

    pools: list[FieldEvidence | None]
    other_terms: Floats
    author_share: Floats
    """Shape (R, G). 0 for authors without a candidate."""
    owner: Ints
    kind: Ints
    right: Floats
    own_right: Floats
    """Number of right fields of each problem by author and kind, shape (P, G, K)."""
    own_total: Floats
    authors: list[str]
    kinds: list[str]
    offsets: Ints

    def skills(self, used: Bools) -> tuple[Floats, Floats]:
        """Log-odds from the other problems in use: over all kinds, shape (P, G), and by kind, shape (P, G, K)."""
        own = used[:, None, None]
        right = self.own_right[used].sum(axis=0) - np.where(own, self.own_right, 0.0)
        total = self.own_total[used].sum(axis=0) - np.where(own, self.own_total, 0.0)
        return _skills(right, total, pooled=self.pooled(used))

    def pooled(self, used: Bools) -> float:
        """Smoothed share of right fields over all authors and kinds."""
        return float((self.own_right[used].sum() + 0.5) / (self.own_total[used].sum() + 1.0))

    def features(self, used: Bools) -> Floats:
        """Terms, a constant, and one column per kind but 0, shape (R, 5 + 1 + K - 1)."""
        terms = terms_of(self.other_terms, self.author_share, self.skills(used)[1][self.owner, :, self.kind])
        return np.column_stack([terms, self.by_kind(np.arange(len(self.owner)))])

    def by_kind(self, rows: Ints) -> Floats:
        """A constant and one column per kind but 0, for these rows."""
        return np.column_stack([np.ones(len(rows)), np.eye(len(self.kinds))[self.kind[rows]][:, 1:]])

    def fit(self, features: Floats, center: Floats, rows: Ints) -> Floats:
        """Weights that maximise the likelihood of these rows, in which every problem counts once."""
        context = np.zeros((len(self.pools), 0))
        design = Design(features=features, context=context, owner=self.owner[rows], right=self.right[rows])
        return maximum(independent(design), center)


def fit_fields(
    table: PoolTable, crossfit: CrossFit, posteriors: Sequence[Posterior], selected: Ints
) -> FieldFit | None:
    """Fit the model. None if no field is labelled, or no problem has evidence about fields.

    Args:
        table: labelled problems.
        crossfit: folds of the problems.
        posteriors: recalibrated posterior of each fold, fitted on the other folds.
        selected: selected cluster of each problem, shape (P,); -1 for none.
    """
    if not any(table.field_verdicts):
        return None
    rows, best = _rows(table, crossfit, posteriors, selected)
    if not len(rows.owner):
        return None
    known, fold = ~np.isnan(rows.right), crossfit.fold
    center, num_kinds = np.concatenate([PRIOR, np.zeros(len(rows.kinds))]), len(rows.kinds)
    log_odds = np.zeros(len(rows.owner))
    for number in range(len(posteriors)):
        used = fold != number
        features = rows.features(used)
        learned = np.flatnonzero(known & used[rows.owner])
        theta = rows.fit(features[learned], center, learned)
        inside = fold[rows.owner] == number
        log_odds[inside] = features[inside] @ theta
    chosen = best[known[best]]
    given = np.column_stack([log_odds[chosen], rows.by_kind(chosen)])
    unchanged = np.array([1.0, *np.zeros(num_kinds)])
    confidence = np.zeros(len(chosen))
    fold_of = fold[rows.owner[chosen]]
    for number in range(len(posteriors)):
        others = fold_of != number
        confidence[~others] = sigmoid(given[~others] @ rows.fit(given[others], unchanged, chosen[others]))
    everything, labelled = np.ones(table.num_pools, dtype=bool), np.flatnonzero(known)
    theta = rows.fit(rows.features(everything)[labelled], center, labelled)
    slope, *biases = rows.fit(given, unchanged, chosen)
    theta = slope * theta + np.array([*np.zeros(len(TERMS)), *biases])
    proven = _proven(table, selected)[rows.owner[chosen]]
    evidence = [rows.pools[problem] for problem in rows.owner[chosen]]
    local = chosen - rows.offsets[rows.owner[chosen]]
    return FieldFit(
        model=_model(rows, theta, everything),
        owner=rows.owner[chosen],
        paths=tuple(
            own.paths[own.path_of_row[row]] for own, row in zip(evidence, local, strict=True) if own is not None
        ),
        confidence=np.where(proven, 1.0, confidence),
        marginal=np.where(proven, 1.0, sigmoid(rows.other_terms[chosen, 0])),
        share=sigmoid(rows.other_terms[chosen, 1]),
        right=rows.right[chosen],
    )


def _skills(right: Floats, total: Floats, *, pooled: float) -> tuple[Floats, Floats]:
    """Shrunk log-odds of authors over all kinds, shape (..., G), and by kind, shape (..., G, K).

    Kind 0 means any other kind. Its values are those over all kinds.
    """
    overall = (right.sum(axis=-1) + SKILL_PRIOR * pooled) / (total.sum(axis=-1) + SKILL_PRIOR)
    is_known = np.arange(right.shape[-1]) > 0
    share = (right * is_known + KIND_PRIOR * overall[..., None]) / (total * is_known + KIND_PRIOR)
    return np.log(overall) - np.log1p(-overall), np.log(share) - np.log1p(-share)


def _model(rows: _Rows, theta: Floats, used: Bools) -> FieldModel:
    overall, by_kind = _skills(rows.own_right.sum(axis=0), rows.own_total.sum(axis=0), pooled=rows.pooled(used))
    kinds = rows.kinds[1:]
    return FieldModel(
        weights=dict(zip(TERMS, theta.tolist(), strict=False)),
        bias=float(theta[len(TERMS)]),
        kinds=dict(zip(kinds, theta[len(TERMS) + 1 :].tolist(), strict=True)),
        skills={
            author: {"": whole, **dict(zip(kinds, of_kinds[1:], strict=True))}
            for author, whole, of_kinds in zip(rows.authors, overall.tolist(), by_kind.tolist(), strict=True)
        },
    )


def _rows(table: PoolTable, crossfit: CrossFit, posteriors: Sequence[Posterior], selected: Ints) -> tuple[_Rows, Ints]:
    """All values of the problems, and the rows of the selected answers' values."""
    pools, given = _evidence(table, crossfit, posteriors, selected)
    authors, kinds = list(table.authors), _kinds(pools)
    of_author = {name: place for place, name in enumerate(authors)}
    of_kind = {name: place for place, name in enumerate(kinds)}
    shape = (len(pools), len(authors), len(kinds))
    own_right, own_total = np.zeros(shape), np.zeros(shape)
    other_terms, author_share, owner, kind, right, best = [], [], list[int](), list[int](), [], list[Ints]()
    offsets = np.cumsum([0, *(0 if pool is None else len(pool.values) for pool in pools)])
    for place, pool in enumerate(pools):
        if pool is None:
            continue
        labelled = [row for row in table.rows_of(place) if table.field_verdicts[row]]
        kind_of_path = np.array([of_kind.get(kind_of_field(path), 0) for path in pool.paths])
        columns = [of_author[author] for author in pool.authors]
        wide = np.zeros((len(pool.values), len(authors)))
        wide[:, columns] = pool.author_share
        other_terms.append(pool.other_terms)
        author_share.append(wide)
        owner += [place] * len(pool.values)
        kind += kind_of_path[pool.path_of_row].tolist()
        right.append(_verdicts(pool, table, labelled, given[place]))
        for row in labelled:
            for path, is_right in table.field_verdicts[row].items():
                cell = (place, table.author_of_row[row], of_kind.get(kind_of_field(path), 0))
                own_right[cell] += is_right
                own_total[cell] += 1
        if given[place] is not None:
            best.append(offsets[place] + pool.rows[:, given[place]])
    rows = _Rows(
        pools=pools,
        other_terms=np.concatenate(other_terms) if other_terms else np.zeros((0, len(TERMS) - 1)),
        author_share=np.concatenate(author_share) if author_share else np.zeros((0, len(authors))),
        owner=np.array(owner, dtype=np.intp),
        kind=np.array(kind, dtype=np.intp),
        right=np.concatenate(right) if right else np.zeros(0),
        own_right=own_right,
        own_total=own_total,
        authors=authors,
        kinds=kinds,
        offsets=offsets,
    )
    return rows, np.concatenate(best) if best else np.empty(0, dtype=np.intp)


def _evidence(
    table: PoolTable, crossfit: CrossFit, posteriors: Sequence[Posterior], selected: Ints
) -> tuple[list[FieldEvidence | None], list[int | None]]:
    """Evidence of each problem under the posterior of its fold, and the index of its selected answer."""
    probability = np.zeros(table.num_clusters)
    of_cluster = crossfit.fold[table.pool_of_cluster]
    chosen = np.full(table.num_pools, -1, dtype=np.intp)
    for number, posterior in enumerate(posteriors):
        inside = of_cluster == number
        probability[inside] = posterior.estimates(table).probability[inside]
        given = representatives(table, posterior.reference)
        own = (crossfit.fold == number) & (selected >= 0)
        chosen[own] = given[selected[own]]
    first = np.cumsum([0, *map(len, table.clusters)])
    pools: list[FieldEvidence | None] = []
    answers: list[int | None] = []
    for place, clusters in enumerate(table.clusters):
        shares = {cluster.key: float(probability[first[place] + index]) for index, cluster in enumerate(clusters)}
        candidates = [table.candidates[row] for row in table.rows_of(place)]
        pool = field_evidence(candidates, shares, posteriors[crossfit.fold[place]].reference)
        best = None if chosen[place] < 0 else table.candidates[chosen[place]].report.answer
        pools.append(pool)
        answers.append(None if pool is None or best is None else pool.answer_of.get(best))
    return pools, answers


def _kinds(pools: Sequence[FieldEvidence | None]) -> list[str]:
    """An empty name for any other kind, then the kinds of field with a bias of their own, most frequent first."""
    counts: Counter[str] = Counter()
    for pool in pools:
        counts.update({} if pool is None else dict.fromkeys(map(kind_of_field, pool.paths), 1))
    return ["", *(kind for kind, count in counts.most_common(MAX_KINDS) if count >= MIN_PROBLEMS)]


def _verdicts(pool: FieldEvidence, table: PoolTable, labelled: Sequence[int], selected: int | None) -> Floats:
    """Verdict on each value, shape (R,). For values of the selected answer: the verdict in that answer. For others: the
    share of the labelled candidates with the value in which it is right, NaN without such candidates.

    One value may be right in one answer and wrong in another: a restaurant is wrong in a plan that visits it twice.
    """
    right, count, own = np.zeros(len(pool.values)), np.zeros(len(pool.values)), None
    for row in labelled:
        verdicts, answer = table.field_verdicts[row], pool.answer_of.get(table.candidates[row].report.answer or "")
        if answer is not None:
            # A field that is in neither the answer nor the reference answer is rightly missing.
            verdict = np.array([verdicts.get(path, True) for path in pool.paths], dtype=np.float64)
            right[pool.rows[:, answer]] += verdict
            count[pool.rows[:, answer]] += 1
            own = verdict if answer == selected else own
    share: Floats = np.divide(right, count, out=np.full(len(right), math.nan), where=count > 0)
    if own is not None:
        share[pool.rows[:, selected]] = own
    return share


def _proven(table: PoolTable, selected: Ints) -> Bools:
    """Whether an exact constraint proves the selected answer, shape (P,)."""
    is_proven: Bools = np.append(table.proof == 1, False)[selected]
    return is_proven
