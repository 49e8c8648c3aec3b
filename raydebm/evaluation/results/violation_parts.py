"""Parts of the violation score by selector (paper, the dimensions of TravelPlanner).

The parts are from the labels (``Stack.dimensions``). Without them the constraints' own penalties C_j of parsed
candidates are shown, which cover less; ``Dimensions.source`` states the source.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from raydebm.evaluation.pools.pool import Floats
from raydebm.evaluation.pools.stack import Stack
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


def dimension_table(stack: Stack, selectors: Sequence[Selector], bootstrap: Bootstrap) -> DimensionTable | None:
    """Build the table. None if no candidate has a part and none breaks a constraint."""
    source: Source = "labels" if stack.dimensions else "constraint penalties of parsed candidates"
    parts = _labelled_parts if source == "labels" else _penalties
    columns, of_greedy = parts(stack), {} if stack.greedy is None else parts(stack.greedy)
    names = list(dict.fromkeys([*columns, *of_greedy]))
    if source != "labels":
        names.sort()
    if not names:
        return None
    empty = np.full((len(stack.problems), 1), math.nan)
    has_values = {
        name: ~np.isnan(np.hstack([columns.get(name, empty), of_greedy.get(name, empty)])).all(axis=1) for name in names
    }
    values: dict[str, list[Estimate]] = {name: [] for name in names}
    for selector in selectors:
        _, weights = selector.choices(stack)
        is_empty = weights.sum(axis=1) == 0
        of_nothing = 1.0 if source == "labels" and not selector.partial_cover else math.nan
        for name in names:
            chosen = expected(weights, (of_greedy if selector.is_greedy else columns).get(name, empty))
            values[name].append(bootstrap.mean(np.where(has_values[name] & is_empty, of_nothing, chosen)))
    return DimensionTable(
        source=source,
        selectors=tuple(selector.name for selector in selectors),
        rows=tuple((name, tuple(values[name])) for name in names),
    )


def _labelled_parts(stack: Stack) -> Mapping[str, Floats]:
    return stack.dimensions


def _penalties(stack: Stack) -> Mapping[str, Floats]:
    """Penalty by constraint, shape (P, N): 0 if satisfied, NaN if the candidate does not parse."""
    return {name: np.where(stack.parsed, np.nan_to_num(column), math.nan) for name, column in stack.broken.items()}
