"""Correction of probabilities for small pools, fitted on parts of the labelled pools.

A posterior is fitted on whole pools. A single candidate has the same share of votes, agreement of adapters and number
of answers as nine candidates that agree, so it would have the same confidence. Random parts of the labelled pools
(half, a quarter, ..., one candidate) show how often such selections are right. With h the number of halvings from
``full_size`` to the number of a pool's candidates with text,

    offset(h) = offset - size_offset h,    slope(h) = slope exp(-size_slope h)

replace the recalibration's offset and slope (``recalibration``). Whole pools are unchanged. Both parameters maximise
the likelihood of "the selected answer is right" on parts of problems that the posterior was not fitted on, with a
normal prior around "no change".

In:   labelled pools with their cross-fitted posteriors.
Out:  a posterior with ``full_size``, ``size_offset`` and ``size_slope``.
Independent of: files, Ray, thresholds.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.optimize import minimize

from raydebm.decision.evidence.fitting import CrossFit
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.table import Bools, Floats, Ints, PoolTable
from raydebm.identity import seed_for

PRIOR_SD = 1.0
"""Standard deviation of the prior on both parameters."""
FULL_SHARE = 0.1
"""Maximum share of labelled pools that are smaller than ``full_size``."""
MAX_POOLS = 2000
"""Maximum number of labelled pools to take parts of, chosen by hashed id. More are not needed for two parameters."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolParts:
    """Parts of labelled pools with their cross-fitted predictions."""

    full_size: int
    table: PoolTable
    """Table with one pool per part."""
    crossfit: CrossFit

    @classmethod
    def of(cls, table: PoolTable, crossfit: CrossFit) -> Self | None:
        """Sample parts of 1, 2, 4, ... candidates below ``full_size``. None if no pool has a smaller part."""
        written = table.written
        full_size = int(np.sort(written)[int(FULL_SHARE * len(written))])
        sizes = [2**power for power in range(full_size.bit_length()) if 2**power < full_size]
        names = [problem.problem_id for problem in table.problems]
        drawn = sorted(range(len(names)), key=lambda place: seed_for("parts", names[place]))[:MAX_POOLS]
        parts = [(place, size) for place in sorted(drawn) for size in sizes if size < written[place]]
        if not parts:
            return None
        rows = [_part(table.rows_of(place), size, names[place]) for place, size in parts]
        made = PoolTable.of([[table.candidates[row] for row in part] for part in rows])
        made = replace(made, correct=table.worth[np.concatenate(rows)])
        fold = crossfit.fold[[place for place, _ in parts]]
        return cls(full_size=full_size, table=made, crossfit=CrossFit.of(made, crossfit.posteriors, fold))

    def corrected(self, posterior: Posterior, selected: Ints, *, used: Bools | None = None) -> Posterior:
        """The same posterior with the correction for small pools.

        Args:
            posterior: posterior recalibrated on whole pools.
            selected: selected cluster of each part, shape (P,); -1 for none.
            used: mask of the parts to learn from. Default: all.
        """
        is_used = selected >= 0 if used is None else (selected >= 0) & used
        rows = selected[is_used]
        worth, own = self.table.cluster_worth[rows], self.crossfit.probability[rows]
        known = np.isfinite(worth) & (own > 0) & (own < 1)
        if not known.any():
            return posterior
        rows, worth = rows[known], worth[known]
        table, fits = self.table, self.crossfit

        def objective(theta: Floats) -> float:
            trial = replace(posterior, full_size=self.full_size, size_offset=theta[0], size_slope=theta[1])
            probability, _ = trial.recalibrate(fits.probability, fits.none, table.pool_of_cluster, table.written)
            p = np.clip(probability[rows], 1e-12, 1 - 1e-12)
            likelihood = float((worth * np.log(p) + (1 - worth) * np.log1p(-p)).sum())
            return float(theta @ theta) / (2 * PRIOR_SD**2) - likelihood

        size_offset, size_slope = minimize(objective, np.zeros(2), method="L-BFGS-B").x
        return replace(
            posterior, full_size=self.full_size, size_offset=float(size_offset), size_slope=float(size_slope)
        )


def _part(rows: Ints, size: int, problem_id: str) -> Ints:
    """Deterministic random part of a pool's rows, in the order of the table."""
    generator = np.random.default_rng(seed_for(size, problem_id, "part", 1, 0))
    return np.sort(generator.choice(rows, size, replace=False))
