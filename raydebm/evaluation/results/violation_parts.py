"""Parts of the violation score by selector (paper, the dimensions of TravelPlanner).

The parts are those that the labels give (``EvaluatedPool.dimensions``). Without them the constraints' own penalties
C_j of parsed candidates are shown, which cover less; ``Dimensions.source`` says which it is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from raydebm.evaluation.pools.pool import EvaluatedPool, Floats
from raydebm.evaluation.selectors.selector import Selector, expected
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.records import ScoredCandidate

Source = Literal["labels", "constraint penalties of parsed candidates"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionTable:
    """Mean value per part and selector, lower is better. Of the labels' parts, a rule that could choose nothing has all
    (1), as in its mean violation."""

    source: Source
    selectors: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Estimate, ...]], ...]
    """(part, one estimate per selector)."""


def dimension_table(
    pools: Sequence[EvaluatedPool], selectors: Sequence[Selector], bootstrap: Bootstrap
) -> DimensionTable | None:
    """None where no candidate has a part and none breaks a constraint."""
    source: Source = "labels"
    columns = [dict(pool.dimensions) for pool in pools]
    if not any(columns):
        source = "constraint penalties of parsed candidates"
        names = sorted(
            {
                violation.constraint
                for pool in pools
                for scored in pool.everything
                for violation in scored.report.violations
            }
        )
        columns = [{name: _penalties(pool.everything, name) for name in names} for pool in pools]
    names = list(dict.fromkeys(name for column in columns for name in column))
    if not names:
        return None
    weights = [[selector.weights(pool) for pool in pools] for selector in selectors]
    of_nothing = [1.0 if source == "labels" and not selector.partial_cover else math.nan for selector in selectors]
    return DimensionTable(
        source=source,
        selectors=tuple(selector.name for selector in selectors),
        rows=tuple(
            (
                name,
                tuple(
                    bootstrap.mean(
                        np.array(
                            [_expected(w, found.get(name), nothing) for w, found in zip(by_pool, columns, strict=True)]
                        )
                    )
                    for by_pool, nothing in zip(weights, of_nothing, strict=True)
                ),
            )
            for name in names
        ),
    )


def _penalties(items: Sequence[ScoredCandidate], name: str) -> Floats:
    return np.array(
        [
            math.fsum(violation.penalty for violation in scored.report.violations if violation.constraint == name)
            if scored.report.parsed
            else math.nan
            for scored in items
        ]
    )


def _expected(weights: Floats, values: Floats | None, nothing: float) -> float:
    """``nothing``: what it is worth to choose nothing from a pool that has such values."""
    if values is None or np.isnan(values).all():
        return math.nan
    if weights.sum() == 0:
        return nothing
    return expected(weights, values)
