"""Correction of probabilities for small pools, fitted on parts of the labelled pools.

A posterior is fitted on whole pools. A single candidate has the same share of votes, agreement of adapters and number
of answers as nine candidates that agree, so it would have the same confidence. Random parts of the labelled pools
(half, a quarter, ..., one candidate) show how often such selections are right. With h the number of halvings from
``full_size`` to a pool's written candidates,

    offset(h) = offset - size_offset h,    slope(h) = slope exp(-size_slope h)

replace the recalibration's offset and slope (``recalibration``). Whole pools are unchanged. Both parameters maximise
the likelihood of "the selected answer is right" on parts of problems that the posterior was not fitted on, with a
normal prior around "no change".

In:   labelled pools with their cross-fitted posteriors.
Out:  a posterior with ``full_size``, ``size_offset`` and ``size_slope``.
Does not know: files, Ray, thresholds.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.optimize import minimize

from raydebm.decision.evidence.fitting import CrossFit, LabelledPool, LabelledTable
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.table import Bools, Floats, Ints
from raydebm.identity import seed_for

PRIOR_SD = 1.0
"""Standard deviation of the prior on both parameters."""
FULL_SHARE = 0.1
"""Maximum share of labelled pools that are smaller than ``full_size``."""
MAX_POOLS = 2000
"""Maximum number of labelled pools to take parts of, chosen by hashed id. Two parameters need no more."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolParts:
    """Parts of labelled pools with their cross-fitted predictions."""

    full_size: int
    labelled: LabelledTable
    crossed: CrossFit

    @classmethod
    def of(cls, labelled_table: LabelledTable, crossed: CrossFit) -> Self | None:
        """Sample parts of 1, 2, 4, ... candidates below ``full_size``. None if pools have one candidate."""
        written = labelled_table.table.written
        full_size = int(np.sort(written)[int(FULL_SHARE * len(written))])
        sizes = [2**power for power in range(full_size.bit_length()) if 2**power < full_size]
        pools = labelled_table.pools
        drawn = sorted(range(len(pools)), key=lambda place: seed_for("parts", pools[place].problem_id))[:MAX_POOLS]
        parts = [
            (crossed.fold[place], _part(pools[place], size))
            for place in sorted(drawn)
            for size in sizes
            if size < written[place]
        ]
        if not parts:
            return None
        labelled = LabelledTable.of([pool for _, pool in parts])
        fold = np.array([number for number, _ in parts])
        probability, none = np.zeros(labelled.table.num_clusters), np.ones(len(parts))
        for number, posterior in enumerate(crossed.posteriors):
            inside = fold == number
            estimates = posterior.estimates(labelled.table)
            of_fold = inside[labelled.table.pool_of_cluster]
            probability[of_fold], none[inside] = estimates.probability[of_fold], estimates.none[inside]
        predictions = CrossFit(posteriors=crossed.posteriors, fold=fold, probability=probability, none=none)
        return cls(full_size=full_size, labelled=labelled, crossed=predictions)

    def corrected(self, posterior: Posterior, selected: Ints, *, used: Bools | None = None) -> Posterior:
        """The same posterior with the correction for small pools.

        Args:
            posterior: Posterior recalibrated on whole pools.
            selected: Selected cluster of each part, shape (P,); -1 for none.
            used: Mask of the parts to learn from. Default: all.
        """
        is_used = selected >= 0 if used is None else (selected >= 0) & used
        rows = selected[is_used]
        worth, own = self.labelled.cluster_worth[rows], self.crossed.probability[rows]
        known = np.isfinite(worth) & (own > 0) & (own < 1)
        if not known.any():
            return posterior
        rows, worth = rows[known], worth[known]
        table, crossed = self.labelled.table, self.crossed

        def objective(theta: Floats) -> float:
            trial = replace(posterior, full_size=self.full_size, size_offset=theta[0], size_slope=theta[1])
            probability, _ = trial.recalibrate(crossed.probability, crossed.none, table.pool_of_cluster, table.written)
            p = np.clip(probability[rows], 1e-12, 1 - 1e-12)
            likelihood = float((worth * np.log(p) + (1 - worth) * np.log1p(-p)).sum())
            return float(theta @ theta) / (2 * PRIOR_SD**2) - likelihood

        size_offset, size_slope = minimize(objective, np.zeros(2), method="L-BFGS-B").x
        return replace(
            posterior, full_size=self.full_size, size_offset=float(size_offset), size_slope=float(size_slope)
        )


def part_of(pool: LabelledPool, size: int, generator: np.random.Generator) -> LabelledPool:
    """Random part of a pool's written candidates. Raises ValueError if the pool has fewer than ``size``."""
    written = [place for place, scored in enumerate(pool.candidates) if scored.candidate.text is not None]
    places = sorted(generator.choice(written, size, replace=False).tolist())
    fields = [pool.fields[place] for place in places] if len(pool.fields) else ()
    candidates = [pool.candidates[place] for place in places]
    return replace(pool, candidates=candidates, worth=pool.worth[places], fields=fields)


def _part(pool: LabelledPool, size: int) -> LabelledPool:
    """Deterministic random part of a pool."""
    return part_of(pool, size, np.random.default_rng(seed_for(size, pool.problem_id, "part", 1, 0)))
