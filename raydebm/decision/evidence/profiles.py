"""Profiles: ways to select an answer, from simple to rich.

===============  ==============================================================================
``vote``         the answer with the most candidates
``best_author``  the most frequent answer of the pool's author with the highest skill in the kind of question
``energy``       the answer with the lowest E = mu + lambda E_constraint
``energy_vote``  the answer with the largest sum of exp(-E)
``posterior``    the most probable answer
===============  ==============================================================================

Ties go to the more probable answer. Among the candidates with the selected answer, one of the most skilled author is
returned: the one with the lowest E (``terms.representatives``). Equal answers can differ in correctness,
such as programs that agree only on the examples, and skill predicts it better than energy
(docs/log/best_author_representative.md).

Every profile excludes refuted answers and selects a proven one. The confidence is always the posterior's probability of
the selected answer.
"""

from collections.abc import Sequence
from typing import get_args

import numpy as np

from raydebm.config.decision import Profile
from raydebm.decision.evidence.built_in_terms import log_votes
from raydebm.decision.evidence.posterior import Belief, Estimates, Posterior
from raydebm.decision.evidence.terms import skill_of_rows
from raydebm.decision.table import Floats, Ints, PoolTable
from raydebm.records import ScoredCandidate

PROFILES: tuple[Profile, ...] = get_args(Profile)


def _preference(profile: Profile, table: PoolTable, posterior: Posterior) -> Floats:
    """Score by which the profile orders the clusters of a pool, higher first. Shape (C,), -inf if not selectable."""
    if profile == "posterior":
        return np.zeros(table.num_clusters)
    if profile == "best_author":
        return _votes_of_best_author(table, posterior)
    if profile == "vote":
        return log_votes(table)
    if profile == "energy":
        return _minus_energy(table, posterior)
    return table.by_cluster(table.energy_votes(posterior.reference.lambda_))


def _votes_of_best_author(table: PoolTable, posterior: Posterior) -> Floats:
    """Candidates per cluster by the pool's author with the highest skill in its kind of question."""
    skills, names = skill_of_rows(table, posterior.reference), np.array(table.authors)[table.author_of_row]
    _, rank = np.unique(np.rec.fromarrays([skills, names]), return_inverse=True)
    best = np.full(len(table.clusters), -1, dtype=np.intp)
    np.maximum.at(best, table.pool_of_row, rank)
    by_best = (rank == best[table.pool_of_row]).astype(np.float64)
    votes = np.bincount(table.cluster_of_row, by_best, table.num_clusters).astype(np.float64)
    return np.where(votes > 0, votes, -np.inf)


def winners(profile: Profile, table: PoolTable, estimates: Estimates, posterior: Posterior) -> Ints:
    """Index of each pool's selected cluster, shape (P,). -1 if every answer is refuted, or there are no answers."""
    table = table.answered
    value = _preference(profile, table, posterior)
    # A proven answer wins under every profile.
    value = np.where(estimates.probability >= 1, np.inf, value)
    owner, rows = table.pool_of_cluster, np.flatnonzero(estimates.probability > 0)
    energy = _minus_energy(table, posterior)
    # lexsort sorts by the last key first. Ties keep the row order, which is the order of the clusters' keys.
    order = rows[np.lexsort((-energy[rows], -estimates.probability[rows], -value[rows], owner[rows]))]
    values = np.full(len(table.clusters), -1, dtype=np.intp)
    values[owner[order[::-1]]] = order[::-1]
    return values


def _minus_energy(table: PoolTable, posterior: Posterior) -> Floats:
    """Negated lowest E of each cluster, shape (C,). -inf if nothing was scored."""
    least = np.full(table.num_clusters, np.inf)
    np.minimum.at(least, table.cluster_of_row, table.energy(posterior.reference.lambda_))
    return -least


def ranked(profile: Profile, pool: Sequence[ScoredCandidate], posterior: Posterior) -> tuple[Belief, ...]:
    """Answers of a pool: the selection of the profile first, the others by probability, refuted ones last."""
    if profile == "posterior":
        return posterior.beliefs(pool)
    table = PoolTable.of([pool])
    estimates = posterior.estimates(table)
    beliefs = posterior.beliefs_of(pool, table, estimates)
    (selected,) = winners(profile, table, estimates, posterior)
    if selected < 0:
        return beliefs
    key = table.clusters[0][selected].key
    return tuple(sorted(beliefs, key=lambda belief: belief.cluster.key != key))
