"""Decisions about many pools at once, as by ``rules.decide_pool``, with the evidence of all measured together.

A decision holds the belief about the selected answer alone, which is what decides; ``rules.decide_pool`` also tells
about the other answers.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from raydebm.decision.evidence.groups import Ints
from raydebm.decision.evidence.profiles import winners
from raydebm.decision.evidence.terms import PoolTable
from raydebm.decision.policy import Policy
from raydebm.decision.rules import PoolDecision, decide_by_beliefs, decide_pool
from raydebm.records import ScoredCandidate


def decide_pools(
    pools: Sequence[Sequence[ScoredCandidate]], *, passes_left: Sequence[int], policy: Policy
) -> list[PoolDecision]:
    """Decide about each pool; ``passes_left`` is by pool."""
    posterior = policy.posterior
    pairs = list(zip(pools, passes_left, strict=True))
    if posterior is None:
        return [decide_pool(pool, passes_left=left, policy=policy) for pool, left in pairs]
    table = PoolTable.of(pools)
    estimates = posterior.estimates(table)
    if policy.rule == "posterior":
        rows = winners(policy.profile, table, estimates, posterior)
        rows = np.where(rows < 0, _first_rows(table), rows)  # a refuted answer says why nothing is selected
        decided_pools = None
    else:
        plain = policy.replaced(posterior=None)
        decided_pools = [decide_pool(pool, passes_left=left, policy=plain) for pool, left in pairs]
        rows = _rows_of(table, [decided.best for decided in decided_pools])
    known = np.flatnonzero(rows >= 0)
    believed = dict(zip(known.tolist(), posterior.beliefs_at(pools, table, estimates, rows[known]), strict=True))
    beliefs = [(believed[place],) if place in believed else () for place in range(len(pools))]
    if decided_pools is not None:
        return [replace(decided, beliefs=own) for decided, own in zip(decided_pools, beliefs, strict=True)]
    return [
        decide_by_beliefs(pool, own, passes_left=left, policy=policy)
        for (pool, left), own in zip(pairs, beliefs, strict=True)
    ]


def _first_rows(table: PoolTable) -> Ints:
    """(P,): the first cluster of each pool; -1 where it has none."""
    sizes = np.array([len(clusters) for clusters in table.clusters], dtype=np.intp)
    return np.where(sizes > 0, np.cumsum(sizes) - sizes, -1)


def _rows_of(table: PoolTable, selected: Sequence[ScoredCandidate | None]) -> Ints:
    """(P,): the cluster of each pool's selected candidate; -1 without one."""
    first = _first_rows(table).tolist()
    values = np.full(len(selected), -1, dtype=np.intp)
    for place, (clusters, best) in enumerate(zip(table.clusters, selected, strict=True)):
        for index, cluster in enumerate(clusters):
            if best is not None and cluster.key == best.report.vote_key:
                values[place] = first[place] + index
    return values
