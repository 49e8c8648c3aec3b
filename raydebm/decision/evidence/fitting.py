"""Fit the posterior on labelled problems, and predict problems that it was not fitted on.

The weights maximise likelihood times prior (``likelihoods``). Skills are shrunk towards the pooled share of right
candidates by ``SKILL_PRIOR`` pseudo-candidates, and an author's skill in one kind of question towards its skill over
all kinds by ``KIND_PRIOR``. Labels of a problem's own candidates are not used in its evidence.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from raydebm.decision.evidence.built_in_terms import KIND
from raydebm.decision.evidence.likelihoods import Design, exclusive, independent, maximum, quasi_maximum
from raydebm.decision.evidence.measuring import POOL_SCORE, SCORE, evidence_of, terms_about
from raydebm.decision.evidence.posterior import PRIOR, Competition, Outcome, Posterior, filled
from raydebm.decision.evidence.terms import Author, Kind, Reference, representatives
from raydebm.decision.table import Bools, Floats, Ints, PoolTable, sigmoid
from raydebm.errors import PoolError
from raydebm.identity import content_id, text_key
from raydebm.records import Problem
from raydebm.tasks.base import Task

SKILL_PRIOR = 10.0
"""Pseudo-candidates added to every author's skill, at the pooled share of right candidates."""
KIND_PRIOR = 50.0
"""Pseudo-candidates added for each kind, to an author's candidates and to those of all authors together
(docs/log/skill_by_kind.md)."""
DIFFICULTY_PRIOR = 2.0
"""Pseudo-problems added to those of one kind, at the share of all problems without a right candidate."""
NUM_FOLDS = 10


def given_worth(table: PoolTable, reference: Reference) -> Floats:
    """Worth of the candidate returned for each cluster, shape (C,). The cluster's worth if that is unlabelled."""
    worth = table.worth[representatives(table, reference)]
    return np.where(np.isnan(worth), table.cluster_worth, worth)


def has_kinds(table: PoolTable) -> bool:
    """Whether the problems are of several kinds. A single kind carries no information."""
    return len(table.kind_of_pool[0]) > 1


def _unsolved(table: PoolTable) -> Floats:
    """1 minus the worth of each pool's best candidate, and a constant 1, shape (P, 2). Both are 0 for a pool without
    labels or with a proven answer, so that it does not count in estimates."""
    best = -table.least(np.where(np.isnan(table.worth), math.inf, -table.worth))
    counts = np.isfinite(best) & ~_proven(table)
    return np.where(counts[:, None], np.column_stack([1 - best, np.ones(len(best))]), 0.0)


def _proven(table: PoolTable) -> Bools:
    """Whether an answer of the pool is proven, shape (P,)."""
    return np.bincount(table.pool_of_cluster, table.proof == 1, table.num_pools) > 0


def _sums_by_kind(table: PoolTable, values: Floats, used: Bools) -> Floats:
    """Sums of ``values`` (P, X) over the pools in use of each kind, shape (number of kinds, X).

    The sums of the unknown kind are 0, so that its estimates are those over all kinds.
    """
    kinds, kind = table.kind_of_pool
    sums = np.zeros((len(kinds), values.shape[1]))
    np.add.at(sums, kind[used], values[used])
    return np.where(np.array([bool(name) for name in kinds])[:, None], sums, 0.0)


def _others_of_kind(table: PoolTable, values: Floats, used: Bools) -> Floats:
    """Sums of ``values`` over the other used pools of the same kind, by pool, shape (P, X)."""
    kinds, kind = table.kind_of_pool
    is_own = used & np.array([bool(name) for name in kinds])[kind]
    return _sums_by_kind(table, values, used)[kind] - np.where(is_own[:, None], values, 0.0)


def difficulties_of(table: PoolTable, used: Bools) -> Floats:
    """Difficulty of each pool's kind from the other pools in use, shape (P,)."""
    unsolved = _unsolved(table)
    overall = unsolved[used].sum(axis=0) - np.where(used[:, None], unsolved, 0.0)
    return _difficulty(_others_of_kind(table, unsolved, used), overall)


def skills_of(table: PoolTable, used: Bools) -> Floats:
    """Log-odds of the author of each row in a cluster, from the other pools in use, shape (R,).

    With kinds: on the pool's kind of question, minus the level of the kind.
    """
    own_right, own_total = table.worth_by_author
    right, total = own_right[used].sum(axis=0), own_total[used].sum(axis=0)
    pooled = _pooled(right, total)
    own = np.where(used[:, None], 1.0, 0.0)
    share = (right - own * own_right + SKILL_PRIOR * pooled) / (total - own * own_total + SKILL_PRIOR)
    skills: Floats = np.log(share / (1 - share))
    if has_kinds(table):
        right, total = (_others_of_kind(table, values, used) for values in (own_right, own_total))
        in_kind, level = _skills_in_kind(right, total, skills, pooled)
        skills = in_kind - level
    log_odds: Floats = skills[table.answered.pool_of_row, table.answered.author_of_row]
    return log_odds


def _pooled(right: Floats, total: Floats) -> float:
    """Share of right candidates over all authors, kept away from 0 and 1."""
    return float((right.sum() + 0.5) / (total.sum() + 1.0))


def _skills_in_kind(right: Floats, total: Floats, overall: Floats, pooled: float) -> tuple[Floats, Floats]:
    """Log-odds of G authors on problems of one kind, and the level of the kind, for each of X kinds: shapes (X, G) and
    (X, 1).

    An author's log-odds are shrunk towards those over all kinds plus the level, and the level is shrunk towards 0.

    Args:
        right: Right candidates of the kind by author, shape (X, G).
        total: Labelled candidates of the kind by author, shape (X, G).
        overall: Log-odds of the authors over all kinds, shape (G,) or (X, G).
        pooled: Share of right candidates over all authors and kinds.
    """
    share = (right.sum(axis=1) + KIND_PRIOR * pooled) / (total.sum(axis=1) + KIND_PRIOR)
    level = (np.log(share / (1 - share)) - _logit(pooled))[:, None]
    own = (right + KIND_PRIOR * sigmoid(overall + level)) / (total + KIND_PRIOR)
    return np.log(own / (1 - own)), level


def _logit(share: float) -> float:
    return math.log(share / (1 - share))


def _difficulty(of_kind: Floats, overall: Floats) -> Floats:
    """Log-odds of "no candidate is right" in a kind minus those over all kinds, from sums (..., 2) of ``_unsolved``."""
    base = (overall[..., 0] + 0.5) / (overall[..., 1] + 1.0)
    share = (of_kind[..., 0] + DIFFICULTY_PRIOR * base) / (of_kind[..., 1] + DIFFICULTY_PRIOR)
    difference: Floats = np.log(share / (1 - share)) - np.log(base / (1 - base))
    return difference


def reference_of(table: PoolTable, used: Bools, *, lambda_: float) -> Reference:
    """Skill, energies and lengths of each author, from the pools in use."""
    own_right, own_total = table.worth_by_author
    right, total = own_right[used].sum(axis=0), own_total[used].sum(axis=0)
    pooled = _pooled(right, total)
    answered = table.answered
    in_use = used[answered.pool_of_row]
    energies = _norms(answered.mu, answered, in_use & ~np.isnan(answered.mu))
    lengths = _norms(np.log1p(answered.length), answered, in_use)
    scores = {
        name: _norms(values, answered, in_use & ~np.isnan(values)) for name, values in answered.evidence_scores.items()
    }
    shares = [*((right + SKILL_PRIOR * pooled) / (total + SKILL_PRIOR)).tolist(), pooled]
    names, kind_of_pool = table.kind_of_pool
    in_kinds: list[dict[str, float]] = [{} for _ in shares]
    kinds: dict[str, Kind] = {}
    if has_kinds(table):
        unsolved_pools = _unsolved(table)
        own, labelled, unsolved = (
            _sums_by_kind(table, values, used) for values in (own_right, own_total, unsolved_pools)
        )
        skills, levels = _skills_in_kind(own, labelled, np.array([_logit(share) for share in shares[:-1]]), pooled)
        difficulties = _difficulty(unsolved, unsolved_pools[used].sum(axis=0))
        sizes = np.bincount(kind_of_pool[used], minlength=len(names))
        for row, name in enumerate(names):
            if not name or not labelled[row].any():
                continue
            kinds[name] = Kind(
                level=float(levels[row, 0]), difficulty=float(difficulties[row]), num_problems=int(sizes[row])
            )
            for code in np.flatnonzero(labelled[row]):
                in_kinds[code][name] = float(skills[row, code])
    *authors, default = [
        Author(
            skill=_logit(share),
            kinds=in_kinds[code],
            center=energies[code][0],
            scale=energies[code][1],
            length_center=lengths[code][0],
            length_scale=lengths[code][1],
            scores={name: norms[code] for name, norms in scores.items()},
        )
        for code, share in enumerate(shares)
    ]
    return Reference(
        authors=dict(zip(table.authors, authors, strict=True)), default=default, lambda_=lambda_, kinds=kinds
    )


def _norms(values: Floats, table: PoolTable, used: Bools) -> list[tuple[float, float]]:
    """(mean, standard deviation) of each author's values, shrunk towards those over all authors. The last pair is over
    all authors."""
    own, author = values[used], table.author_of_row[used]
    center = float(own.mean()) if len(own) else 0.0
    scale = max(float(own.std()), 1e-6) if len(own) > 1 else 1.0
    norms = []
    for code in range(len(table.authors)):
        part = own[author == code]
        norms.append(
            (
                _shrunk(float(part.mean()) if len(part) else center, center, len(part)),
                max(_shrunk(float(part.std()) if len(part) else scale, scale, len(part)), 1e-6),
            )
        )
    return [*norms, (center, scale)]


def _shrunk(own: float, pooled: float, count: int) -> float:
    return (count * own + SKILL_PRIOR * pooled) / (count + SKILL_PRIOR)


def competition_of(task: Task) -> Competition:
    """Competition between different answers to one problem: ``exclusive`` if only one can be right."""
    return "exclusive" if task.defaults.answers_compete else "independent"


def _design(table: PoolTable, used: Bools, reference: Reference, terms: Sequence[str], names: Sequence[str]) -> Design:
    """Clusters that are neither proven nor refuted, from labelled problems in use without a proven answer.

    Empty if every answer is proven or refuted, or no answer was parsed.
    """
    evidence = evidence_of(table, reference, skills=skills_of(table, used), difficulties=difficulties_of(table, used))
    owner, count, is_open = table.pool_of_cluster, table.num_pools, np.isnan(table.proof)
    labelled = np.bincount(owner, is_open & ~np.isnan(table.cluster_worth), count) > 0
    kept_pools = used & ~_proven(table) & labelled
    kept_clusters = is_open & kept_pools[owner]
    features = np.column_stack([filled(evidence.term(name), owner, count) for name in terms])
    place = np.cumsum(kept_pools) - 1
    return Design(
        features=features[kept_clusters],
        context=np.nan_to_num(np.column_stack([evidence.context_term(name)[kept_pools] for name in names])),
        owner=place[owner[kept_clusters]],
        right=table.cluster_worth[kept_clusters],
    )


def _learned(table: PoolTable, used: Bools | None) -> Bools:
    """Labelled pools in use, shape (P,)."""
    in_use = np.ones(table.num_pools, dtype=np.bool_) if used is None else used
    learned = in_use & table.any(~np.isnan(table.worth))
    if not learned.any():
        raise PoolError(f"none of {in_use.sum()} problems is labelled, so the posterior cannot be fitted; label some")
    return learned


def fit_posterior(
    table: PoolTable,
    *,
    lambda_: float,
    task: str = "",
    competition: Competition = "exclusive",
    terms: Sequence[str] | None = None,
    context: Sequence[str] | None = None,
    used: Bools | None = None,
) -> Posterior:
    """Fit the weights. Probabilities are not recalibrated (see ``recalibration``).

    The weights are the prior's if every answer is proven or refuted, or none was parsed.

    Args:
        table: labelled problems. Unlabelled problems are ignored.
        lambda_: weight of E_constraint in E.
        task: name of the problems' task.
        competition: whether different answers to one problem exclude each other. Ignored for violation scores, where
            they never do.
        terms: terms about answers that may have weight. Default: all, including all baseline scores.
        context: terms about "none of them" that may have weight. Default: all (the kind only if there are several),
            including all baseline scores.
        used: mask of the pools to learn from. Default: all.

    Raises:
        PoolError: no problem in use is labelled.
        ConfigError: unknown term.
    """
    outcome: Outcome = "violation" if table.has_violations else "correct"
    scores = table.answered.evidence_scores
    if terms is None:
        terms = [*(term.name for term in terms_about("answer")), *(SCORE + name for name in scores)]
    if context is None:
        context = [
            *(term.name for term in terms_about("none") if term.name != KIND or has_kinds(table)),
            *(POOL_SCORE + name for name in scores),
        ]
    start = Posterior(
        weights={name: PRIOR.get(name, 0.0) for name in terms},
        context_weights={name: PRIOR.get(name, 0.0) for name in context},
    )
    learned = _learned(table, used)
    reference = reference_of(table, learned, lambda_=lambda_)
    design = _design(table, learned, reference, terms, context)
    center = np.array([*start.weights.values(), *start.context_weights.values()])
    if outcome == "violation":
        theta = quasi_maximum(design, center)
    else:
        theta = maximum(exclusive(design) if competition == "exclusive" else independent(design), center)
    return replace(
        start,
        weights=dict(zip(terms, map(float, theta), strict=False)),
        context_weights=dict(zip(context, map(float, theta[len(terms) :]), strict=True)),
        reference=reference,
        competition="independent" if outcome == "violation" else competition,
        outcome=outcome,
        num_problems=int(learned.sum()),
        task=task,
    )


def folds_of(problem_ids: Sequence[str], num_folds: int) -> Ints:
    """Fold of each problem. Distinct ids are assigned in turn, ordered by hash: fold sizes differ by at most one id."""
    ranked = sorted(set(problem_ids), key=lambda name: content_id("fold", name))
    place = {name: index % num_folds for index, name in enumerate(ranked)}
    return np.array([place[name] for name in problem_ids], dtype=np.intp)


def _ids_shared_by_duplicates(problems: Sequence[Problem]) -> list[str]:
    """Smallest id among the problems with the same text, by problem."""
    smallest: dict[str, str] = {}
    keys = [text_key(problem.prompt) for problem in problems]
    for key, problem in zip(keys, problems, strict=True):
        smallest[key] = min(smallest.get(key, problem.problem_id), problem.problem_id)
    return [smallest[key] for key in keys]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrossFit:
    """Predictions for every pool by a posterior fitted on the other folds."""

    posteriors: tuple[Posterior, ...]
    """Posteriors by fold, each fitted on the other folds."""
    fold: Ints
    """(P,)"""
    probability: Floats
    """(C,)"""
    none: Floats
    """(P,)"""

    @classmethod
    def of(cls, table: PoolTable, posteriors: Sequence[Posterior], fold: Ints) -> Self:
        """Predict each pool with its fold's posterior."""
        probability, none = np.zeros(table.num_clusters), np.ones(table.num_pools)
        for number, posterior in enumerate(posteriors):
            inside = fold == number
            estimates, of_fold = posterior.estimates(table), inside[table.pool_of_cluster]
            probability[of_fold], none[inside] = estimates.probability[of_fold], estimates.none[inside]
        return cls(posteriors=tuple(posteriors), fold=fold, probability=probability, none=none)


def cross_fit(table: PoolTable, fit: Callable[[Bools], Posterior], *, num_folds: int = NUM_FOLDS) -> CrossFit:
    """For each fold, fit on the other folds and predict this one. Problems with the same text are in one fold.

    Raises:
        PoolError: fewer than two problems, or no labelled problem outside some fold.
    """
    if table.num_pools < 2:
        raise PoolError(f"cross-fitting needs at least 2 problems, got {table.num_pools}")
    folds = folds_of(_ids_shared_by_duplicates(table.problems), min(num_folds, table.num_pools))
    posteriors = tuple(fit(folds != fold) for fold in range(int(folds.max()) + 1))
    return CrossFit.of(table, posteriors, folds)
