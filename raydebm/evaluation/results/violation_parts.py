"""Parts of the violation score by selector (paper, the dimensions of TravelPlanner).

The parts are from the labels (``PoolTable.dimensions``). Without them the constraints' own penalties C_j of parsed
candidates are shown, which cover less; ``Dimensions.source`` states the source.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from raydebm.decision.groups import Floats
from raydebm.decision.table import PoolTable
from raydebm.evaluation.selectors.selector import Selector, expected
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate

Source = Literal["labels", "constraint penalties of parsed candidates"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionTable:
    """Mean value per part and selector, lower is better. For the labels' parts, a rule without a selection has 1, as in
    its mean violation."""

    source: Source
    selectors: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Estimate, ...]], ...]
    """Rows (part, one estimate per selector)."""


def dimension_table(pools: PoolTable, selectors: Sequence[Selector], bootstrap: Bootstrap) -> DimensionTable | None:
    """Build the table. None if no candidate has a part and none breaks a constraint."""
    source: Source = "labels" if pools.dimensions else "constraint penalties of parsed candidates"
    parts = _labelled_parts if source == "labels" else _penalties
    columns, of_greedy = parts(pools), {} if pools.greedy is None else parts(pools.greedy)
    names = list(dict.fromkeys([*columns, *of_greedy]))
    if source != "labels":
        names.sort()
    if not names:
        return None
    greedy = pools if pools.greedy is None else pools.greedy
    has_values = {
        name: (pools.any(~np.isnan(columns[name])) if name in columns else False)
        | (greedy.any(~np.isnan(of_greedy[name])) if name in of_greedy else False)
        for name in names
    }
    values: dict[str, list[Estimate]] = {name: [] for name in names}
    for selector in selectors:
        among, weights = selector.choices(pools)
        own = of_greedy if among is pools.greedy else columns
        of_nothing = 1.0 if source == "labels" and not selector.partial_cover else math.nan
        for name in names:
            chosen = expected(among, weights, own[name]) if name in own else np.full(pools.num_pools, math.nan)
            is_empty = has_values[name] & (among.total(weights) == 0)
            values[name].append(bootstrap.mean(np.where(is_empty, of_nothing, chosen)))
    return DimensionTable(
        source=source,
        selectors=tuple(selector.name for selector in selectors),
        rows=tuple((name, tuple(values[name])) for name in names),
    )


def _labelled_parts(pools: PoolTable) -> Mapping[str, Floats]:
    return pools.dimensions


def _penalties(pools: PoolTable) -> Mapping[str, Floats]:
    """Penalty by constraint, shape (R,): 0 if satisfied, NaN if the candidate does not parse."""
    return {name: np.where(pools.parsed, np.nan_to_num(column), math.nan) for name, column in pools.broken.items()}
