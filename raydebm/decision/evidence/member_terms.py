"""Evidence that compares the members of an ensemble: how many prefer an answer, and how far its lead spreads.

Shapes: R candidates, C clusters, P pools, K members.
"""

import math

import numpy as np

from raydebm.decision.evidence.groups import Floats, Ints, ratio


def by_member(members: Floats, cluster: Ints, owner: Ints, num_pools: int) -> tuple[Floats, Floats]:
    """(share of members whose lowest energy is in the cluster, ties shared; spread over members of the best cluster's
    lead), shapes (C,) and (P,); NaN where nothing was scored."""
    count = len(owner)
    best = np.full((count, members.shape[1]), math.inf)
    np.minimum.at(best, cluster, np.where(np.isnan(members), math.inf, members))
    of_pool = np.full((num_pools, members.shape[1]), math.inf)
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
