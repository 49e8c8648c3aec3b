"""All pools side by side as padded arrays, so that studies that select thousands of times are a few array operations.

Letters of shapes: P pools, N candidates of the largest pool, K adapters. A pool's candidates stand in the order of
their ids, so that the first of equals is the one that ``decision.rules.select`` takes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raydebm.energy import total_energies
from raydebm.errors import PoolError
from raydebm.evaluation.pools.pool import Bools, EvaluatedPool, Floats
from raydebm.records import ScoredCandidate

Ints = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stack:
    """First-pass candidates of every pool, greedy ones left out. Rows beyond a pool's size are not ``present``."""

    pools: tuple[EvaluatedPool, ...]
    rows: tuple[Ints, ...]
    """For each pool: the place of its candidates in the pool, in the order of this stack's columns."""
    present: Bools
    """(P, N)."""
    members: Floats
    """(P, N, K); NaN where nothing was scored."""
    penalty: Floats
    """(P, N); +inf where the candidate did not parse."""
    correct: Floats
    """(P, N); 1, 0, or NaN for unlabeled."""
    violation: Floats
    """(P, N); NaN without one."""
    generator: Ints
    """(P, N); index into ``generators``, -1 where no candidate is."""
    answer: Ints
    """(P, N); candidates of a pool with the same number give the same answer; -1 without one."""
    generators: tuple[str, ...]

    @classmethod
    def of(cls, pools: Sequence[EvaluatedPool]) -> "Stack":
        """
        Raises:
            ValueError: there is no pool.
            PoolError: pools have different numbers of energies per candidate.
        """
        num_pools, width = len(pools), max(*(len(pool.candidates) for pool in pools), 1)
        num_members = max(pool.members.shape[1] for pool in pools)
        counts = {pool.members.shape[1] for pool in pools} - {0}
        if len(counts) > 1:
            raise PoolError(
                f"candidates have {min(counts)} energies in one pool and {max(counts)} in another; the energies come "
                "from different checkpoints, score all candidates again"
            )
        generators = sorted({scored.candidate.generator for pool in pools for scored in pool.candidates})
        place = {name: index for index, name in enumerate(generators)}
        members = np.full((num_pools, width, num_members), math.nan)
        penalty = np.full((num_pools, width), math.inf)
        correct, violation = np.full((2, num_pools, width), math.nan)
        generator, answer = np.full((2, num_pools, width), -1, dtype=np.intp)
        rows: list[Ints] = []
        for index, pool in enumerate(pools):
            items = pool.candidates
            order = np.array(
                sorted(range(len(items)), key=lambda row: items[row].candidate.candidate_id), dtype=np.intp
            )
            size = len(order)
            if pool.members.shape[1]:
                members[index, :size] = pool.members[order]
            penalty[index, :size] = pool.penalty[order]
            correct[index, :size] = pool.correct[order]
            violation[index, :size] = pool.violation[order]
            generator[index, :size] = [place[items[row].candidate.generator] for row in order]
            answer[index, :size] = _answers([items[row] for row in order])
            rows.append(order)
        return cls(
            pools=tuple(pools),
            rows=tuple(rows),
            present=generator >= 0,
            members=members,
            penalty=penalty,
            correct=correct,
            violation=violation,
            generator=generator,
            answer=answer,
            generators=tuple(generators),
        )

    @property
    def num_members(self) -> int:
        """K, the members of the ensemble."""
        return int(self.members.shape[2])

    @property
    def sizes(self) -> Ints:
        """(P,): candidates per pool."""
        sizes: Ints = self.present.sum(axis=1)
        return sizes

    @property
    def labelled(self) -> Bools:
        """(P,): the pool has at least one label."""
        return np.array((~np.isnan(self.correct)).any(axis=1))

    def mu(self, adapters: Sequence[int] | None = None) -> Floats:
        """(P, N): mean energy over the adapters (all by default); NaN where nothing was scored."""
        chosen = self.members if adapters is None else self.members[:, :, list(adapters)]
        if chosen.shape[2] == 0:
            return np.full(self.present.shape, math.nan)
        mean: Floats = chosen.mean(axis=2)
        return mean

    def sigma(self, adapters: Sequence[int] | None = None) -> Floats:
        """(P, N): population standard deviation over the adapters; NaN where nothing was scored."""
        chosen = self.members if adapters is None else self.members[:, :, list(adapters)]
        if chosen.shape[2] == 0:
            return np.full(self.present.shape, math.nan)
        spread: Floats = chosen.std(axis=2)
        return spread

    def energy(self, mu: Floats, lambda_: float) -> Floats:
        """(P, N): E = mu + lambda * E_constraint; +inf where it did not parse or was not scored."""
        return np.where(np.isnan(mu), math.inf, total_energies(mu, self.penalty, lambda_))

    def lowest(self, energy: Floats, ties: Floats, *, within: Bools | None = None) -> Ints:
        """(P,): column of the lowest energy, ties by the lower ``ties`` and then by id; -1 where none is finite."""
        usable = self.present & np.isfinite(energy)
        if within is not None:
            usable &= within
        best = np.where(usable, energy, math.inf)
        first = usable & (best == best.min(axis=1, keepdims=True))
        second = np.where(first, ties, math.inf)
        chosen = (first & (second == second.min(axis=1, keepdims=True))).argmax(axis=1)
        return np.where(usable.any(axis=1), chosen, -1)

    def select(self, lambda_: float, adapters: Sequence[int] | None = None) -> Ints:
        """(P,): what the energy of these adapters selects; -1 where it can select nothing."""
        mu = self.mu(adapters)
        return self.lowest(self.energy(mu, lambda_), mu)

    def at(self, values: Floats, picked: Ints) -> Floats:
        """Value of each pool at its pick, shape (P,); NaN where there is no pick."""
        found: Floats = np.where(picked >= 0, values[np.arange(len(picked)), picked], math.nan)
        return found

    def correct_at(self, picked: Ints) -> Floats:
        """(P,): is the pick correct? 0 where nothing could be picked from a labelled pool; NaN for unlabeled."""
        nothing = np.where(self.labelled, 0.0, math.nan)
        found: Floats = np.where(picked >= 0, self.at(self.correct, picked), nothing)
        return found

    def violation_at(self, picked: Ints) -> Floats:
        """(P,): the pick's violation score; 1 where nothing could be picked from a pool that has such scores."""
        nothing = np.where((~np.isnan(self.violation)).any(axis=1), 1.0, math.nan)
        found: Floats = np.where(picked >= 0, self.at(self.violation, picked), nothing)
        return found

    def by_chance(self, within: Bools | None = None) -> Floats:
        """(P,): share of correct among labelled candidates; NaN without any."""
        return self.mean_of(self.correct, within)

    def violation_by_chance(self, within: Bools | None = None) -> Floats:
        """(P,): mean violation of a random candidate, of all or of those in ``within``."""
        return self.mean_of(self.violation, within)

    def mean_of(self, values: Floats, within: Bools | None = None) -> Floats:
        """Mean over the candidates that have a value, shape (P,); NaN without any."""
        known = self.present & ~np.isnan(values)
        if within is not None:
            known &= within
        count = known.sum(axis=1)
        total = np.where(known, values, 0.0).sum(axis=1)
        mean: Floats = np.divide(total, count, where=count > 0, out=np.full(len(count), math.nan))
        return mean

    def oracle(self, within: Bools | None = None) -> Floats:
        """(P,): 1 where some labelled candidate is correct; NaN without any label."""
        known = self.present & ~np.isnan(self.correct)
        if within is not None:
            known &= within
        best = np.where(known, self.correct, -math.inf).max(axis=1)
        return np.where(known.any(axis=1), best, math.nan)


def _answers(items: Sequence[ScoredCandidate]) -> list[int]:
    numbers: dict[str, int] = {}
    return [
        -1 if (key := scored.report.vote_key) is None else numbers.setdefault(key, len(numbers)) for scored in items
    ]
