"""What every selector costs and what it is worth: candidates, judge and reward-model calls, energies.

A rule that looks at one candidate pays for one; a rule that compares candidates pays for the whole pool, failed
requests included, and for scoring it. An unknown price is never taken for 0: the row has calls and no dollars.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from raydebm.config import PricesConfig
from raydebm.evaluation.pools.pool import EvaluatedPool, Floats
from raydebm.evaluation.results.entries import SelectorRow
from raydebm.evaluation.selectors.learned_vote import GENERATOR_VOTE
from raydebm.evaluation.selectors.selector import SINGLE_SHOT, Selector
from raydebm.evaluation.stats.intervals import NOTHING, Bootstrap, Estimate
from raydebm.records import Candidate

ENERGIES = "energies"
"""Under this name ``prices.usd_per_score`` has the price of one candidate's energies, of all adapters together."""
_ONE_CANDIDATE = ("random", "first", "greedy")
_WITHOUT_ENERGIES = ("constraint only", GENERATOR_VOTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """One selector; all figures are means per problem."""

    name: str
    worth: Estimate
    """pass@1, or the mean violation (lower is better) where the task has one."""
    num_candidates: float
    """Requests that were sent for it."""
    num_scores: float
    """Candidates that an outside scorer or the ensemble scored for it."""
    usd: Estimate
    """No value where a price is unknown."""
    is_on_front: bool
    """No other selector is as cheap and as good, and better in one; bounds and choices in hindsight do not compete."""


def cost_rows(
    selectors: Sequence[Selector],
    rows: Sequence[SelectorRow],
    pools: Sequence[EvaluatedPool],
    *,
    prices: PricesConfig,
    bootstrap: Bootstrap,
) -> tuple[CostRow, ...]:
    """One row per selector, in their order.

    Args:
        selectors: the rules.
        rows: what they are worth, found by name.
        pools: the problems.
        prices: what is not recorded with the candidates.
    """
    worth = {row.name: row for row in rows}
    continuous = any(row.mean_violation.value is not None for row in rows)
    drawn = [_usd_of(pool, prices.usd_per_candidate) for pool in pools]
    num_members = max((pool.members.shape[1] for pool in pools), default=0)
    found = []
    for selector in selectors:
        row = worth[selector.name]
        calls = [_calls(selector, pool) for pool in pools]
        price = _price_of_score(selector, prices.usd_per_score, num_members)
        usd = [
            _usd(selector, pool, cost, num_scores, price)
            for pool, cost, (_, num_scores) in zip(pools, drawn, calls, strict=True)
        ]
        found.append(
            CostRow(
                name=selector.name,
                worth=row.mean_violation if continuous else row.pass_at_1,
                num_candidates=_mean([number for number, _ in calls]),
                num_scores=_mean([number for _, number in calls]),
                usd=NOTHING if _is_unknown(usd, calls) else bootstrap.mean(np.array(usd)),
                is_on_front=False,
            )
        )
    return _with_front(found, _competing(selectors), lower_is_better=continuous)


@dataclass(frozen=True, slots=True, eq=False)
class _PoolCost:
    """US dollars; NaN where unknown."""

    candidates: Floats
    """Cost of each candidate, the greedy ones after the pool's."""
    failed: float


def _usd_of(pool: EvaluatedPool, prices: Mapping[str, float]) -> _PoolCost:
    def price(candidate: Candidate) -> float:
        return prices.get(candidate.generator, math.nan) if candidate.cost_usd is None else candidate.cost_usd

    return _PoolCost(
        np.array([price(scored.candidate) for scored in pool.everything]),
        # A failed request that is billed says so; the price of a candidate is no price of a failure.
        math.fsum(scored.candidate.cost_usd or 0.0 for scored in pool.failed),
    )


def _looks_at_one(selector: Selector) -> bool:
    one = selector.name in _ONE_CANDIDATE or selector.name.startswith(SINGLE_SHOT)
    return one or selector.group == "generator"


def _is_scorer(selector: Selector) -> bool:
    return selector.group == "external" and not selector.name.startswith(SINGLE_SHOT)


def _uses_energies(selector: Selector) -> bool:
    return selector.group in ("adapter", "ablation", "ours") and selector.name not in _WITHOUT_ENERGIES


def _calls(selector: Selector, pool: EvaluatedPool) -> tuple[float, float]:
    """(requests, scored candidates) of one problem; (nan, nan) where the rule cannot be applied."""
    if _looks_at_one(selector):
        return (1.0, 0.0) if _chance(selector, pool).sum() > 0 else (math.nan, math.nan)
    num_scores = len(pool.candidates) if _is_scorer(selector) or _uses_energies(selector) else 0
    return float(len(pool.candidates) + len(pool.failed)), float(num_scores)


def _chance(selector: Selector, pool: EvaluatedPool) -> Floats:
    return selector.weights(pool) if pool.everything else np.zeros(0)


def _price_of_score(selector: Selector, prices: Mapping[str, float], num_members: int) -> float:
    """US dollars per candidate; one adapter of K costs a K-th of the ensemble."""
    if _is_scorer(selector):
        return prices.get(selector.name, math.nan)
    if not _uses_energies(selector):
        return 0.0
    share = 1 / num_members if selector.group == "adapter" and num_members else 1.0
    return share * prices.get(ENERGIES, math.nan)


def _usd(selector: Selector, pool: EvaluatedPool, cost: _PoolCost, num_scores: float, price: float) -> float:
    if _looks_at_one(selector):
        chance = _chance(selector, pool)
        chosen = chance > 0
        return float((chance[chosen] * cost.candidates[chosen]).sum()) if chosen.any() else math.nan
    scoring = num_scores * price if num_scores else 0.0
    return float(cost.candidates[: len(pool.candidates)].sum()) + cost.failed + scoring


def _is_unknown(usd: Sequence[float], calls: Sequence[tuple[float, float]]) -> bool:
    """Whether some problem on which the rule was applied has no price: the mean of the others would be another one."""
    return any(math.isnan(cost) and not math.isnan(asked) for cost, (asked, _) in zip(usd, calls, strict=True))


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def _competing(selectors: Sequence[Selector]) -> set[str]:
    return {found.name for found in selectors if found.group != "bound" and "hindsight" not in found.name}


def _with_front(rows: Sequence[CostRow], competing: set[str], *, lower_is_better: bool) -> tuple[CostRow, ...]:
    sign = -1.0 if lower_is_better else 1.0
    known = {
        row.name: (row.usd.value, sign * row.worth.value)
        for row in rows
        if row.name in competing and row.usd.value is not None and row.worth.value is not None
    }

    def is_beaten(name: str) -> bool:
        usd, worth = known[name]
        return any(
            other_usd <= usd and other_worth >= worth and (other_usd < usd or other_worth > worth)
            for other_usd, other_worth in known.values()
        )

    return tuple(replace(row, is_on_front=row.name in known and not is_beaten(row.name)) for row in rows)
