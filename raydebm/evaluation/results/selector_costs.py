"""Cost and worth of every selector: candidates, judge and reward-model calls, energies.

A rule that reads one candidate pays for one. A rule that compares candidates pays for the whole pool, including failed
requests, and for its judge. Dollars are what endpoints billed: energies and local models have none. An unknown cost is
never treated as 0: the row then has counts but no dollars.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from raydebm.decision.table import Floats, PoolTable
from raydebm.evaluation.results.entries import SelectorRow
from raydebm.evaluation.selectors import SINGLE_SHOT, Selector
from raydebm.evaluation.stats.intervals import NOTHING, Bootstrap, Estimate, known_mean

_ONE_CANDIDATE = ("random", "first", "greedy")


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """Cost of one selector. All figures are means per problem."""

    name: str
    worth: Estimate
    """pass@1, or the mean violation (lower is better) if the task has violation scores."""
    num_candidates: float | None
    """Number of requests sent. None if the selector cannot be applied."""
    num_scores: float | None
    """Number of scores by baselines and the ensemble. All energies of a candidate count as one."""
    usd: Estimate
    """US dollars that endpoints billed. No value if any cost is unknown."""
    is_on_front: bool
    """Whether every other selector is more expensive or worse. Bounds and choices in hindsight are excluded. If no
    selector has a price, cost is the number of candidates and of scores."""


def has_prices(rows: Sequence[CostRow]) -> bool:
    """Whether any selector has a price. Otherwise they are compared by their numbers of requests."""
    return any(row.usd.value is not None for row in rows)


def cost_rows(
    selectors: Sequence[Selector],
    rows: Sequence[SelectorRow],
    pools: PoolTable,
    *,
    judge_usd: Mapping[str, float],
    bootstrap: Bootstrap,
) -> tuple[CostRow, ...]:
    """One row per selector, in order.

    Args:
        selectors: Selectors to price.
        rows: Results of the selectors, looked up by name.
        pools: Evaluated pools, one per problem.
        judge_usd: US dollars per rated candidate by judge. Scores of local models are not billed.
    """
    worth = {row.name: row for row in rows}
    continuous = any(row.mean_violation.value is not None for row in rows)
    costs = []
    for selector in selectors:
        row = worth[selector.name]
        num_candidates, num_scores, usd = _costs(selector, pools, judge_usd)
        is_unknown = (np.isnan(usd) & ~np.isnan(num_candidates)).any()
        costs.append(
            CostRow(
                name=selector.name,
                worth=row.mean_violation if continuous else row.pass_at_1,
                num_candidates=known_mean(num_candidates),
                num_scores=known_mean(num_scores),
                # The mean over problems with a price would be biased.
                usd=NOTHING if is_unknown else bootstrap.mean(usd),
                is_on_front=False,
            )
        )
    competing = {each.name for each in selectors if each.group != "bound" and "hindsight" not in each.name}
    return _with_front(costs, competing, lower_is_better=continuous)


def _costs(selector: Selector, pools: PoolTable, judge_usd: Mapping[str, float]) -> tuple[Floats, Floats, Floats]:
    """Candidates and scores that a selector needs, NaN where it cannot be applied, and US dollars, NaN if unknown.
    Shape (P,) each."""
    if selector.name in _ONE_CANDIDATE or selector.name.startswith(SINGLE_SHOT) or selector.group == "generator":
        among, chance = selector.choices(pools)
        chosen = chance > 0
        applies = among.any(chosen)
        usd = among.total(np.where(chosen, chance * among.cost_usd, 0.0))
        return np.where(applies, 1.0, math.nan), np.where(applies, 0.0, math.nan), np.where(applies, usd, math.nan)
    sizes, failed, billed = pools.sizes.astype(np.float64), *np.zeros((2, pools.num_pools))
    for pool, request in pools.failed:
        failed[pool] += 1
        # A billed failure has a recorded cost; the price of a candidate does not apply to a failure.
        billed[pool] += request.candidate.cost_usd or 0.0
    energies = selector.energies if pools.num_members else 0.0
    scorers = {_scorer_of(name, pools.scores) for name in selector.scores}
    num_scores = sizes * (len(scorers) + (energies > 0))
    price = math.fsum(judge_usd.get(name, 0.0) for name in sorted(scorers))
    scoring = np.multiply(sizes, price, where=num_scores > 0, out=np.zeros(len(sizes)))
    drawn = pools.total(pools.cost_usd)
    return sizes + failed, num_scores, drawn + billed + scoring


def _scorer_of(column: str, columns: Collection[str]) -> str:
    """Outside scorer of a column. ``reader.worst`` is another signal of ``reader``, from the same call."""
    reader = column.rpartition(".")[0]
    return reader if reader in columns else column


def _with_front(rows: Sequence[CostRow], competing: set[str], *, lower_is_better: bool) -> tuple[CostRow, ...]:
    sign, is_priced = 1.0 if lower_is_better else -1.0, has_prices(rows)
    known: dict[str, list[float]] = {}
    for row in rows:
        figures = [row.usd.value] if is_priced else [row.num_candidates, row.num_scores]
        figures.append(None if row.worth.value is None else sign * row.worth.value)
        if row.name in competing and None not in figures:
            known[row.name] = [figure for figure in figures if figure is not None]

    def is_beaten(name: str) -> bool:
        """Whether another selector is lower in one figure and at most as high in the others."""
        own = known[name]
        return any(
            other != own and all(one <= two for one, two in zip(other, own, strict=True)) for other in known.values()
        )

    return tuple(replace(row, is_on_front=row.name in known and not is_beaten(row.name)) for row in rows)
