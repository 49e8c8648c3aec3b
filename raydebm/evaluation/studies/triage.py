"""Thresholds on recorded pools: how many problems each pair of thresholds accepts, sends to another pass, or refuses.

One pass is measured here; what a second pass would change needs candidates of that pass (see ``outcomes`` and
``decision.calibration.grid``, whose grid covers all passes).
"""

import math
from dataclasses import dataclass

import numpy as np

from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
PAPER = (0.8, 1.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdRow:
    """One threshold on sigma of the pick."""

    theta: float
    where: str
    """Which quantile it is, or that it is the paper's."""
    triage_rate: Estimate
    """Share for which another pass would be asked if this were theta_sigma: sigma above it, or a constraint broken."""
    accepted: Estimate
    """Accuracy of those that would be accepted at once."""
    abstain_frac: Estimate
    """Share that would get no answer if this were theta_abstain."""
    answered: Estimate
    """Accuracy of the rest."""


def threshold_rows(stack: Stack, *, lambda_: float, bootstrap: Bootstrap) -> tuple[ThresholdRow, ...]:
    """The paper's thresholds and quantiles of sigma on these problems; empty without a spread."""
    if stack.num_members < 2:
        return ()
    picked = stack.select(lambda_)
    sigma, penalty = stack.at(stack.sigma(), picked), stack.at(stack.penalty, picked)
    correct = stack.correct_at(picked)
    known = sigma[~np.isnan(sigma)]
    if not len(known):
        return ()
    named = {float(np.quantile(known, q)): f"{100 * q:.0f} % quantile" for q in QUANTILES}
    named |= {PAPER[0]: "theta_sigma of the paper", PAPER[1]: "theta_abstain of the paper"}
    rows = []
    for theta, where in sorted(named.items()):
        # Written so that NaN (nothing picked) is never accepted.
        quiet = sigma <= theta
        accepted = quiet & (penalty == 0)
        triage_rate, accuracy, abstain_frac, answered = bootstrap.proportions(
            [
                (~accepted).astype(float),
                np.where(accepted, correct, math.nan),
                (~quiet).astype(float),
                np.where(quiet, correct, math.nan),
            ]
        )
        rows.append(
            ThresholdRow(
                theta=theta,
                where=where,
                triage_rate=triage_rate,
                accepted=accuracy,
                abstain_frac=abstain_frac,
                answered=answered,
            )
        )
    return tuple(rows)
