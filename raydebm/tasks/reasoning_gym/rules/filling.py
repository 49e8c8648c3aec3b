"""Counts the ways to fill a grid with numbers, up to two: whether a puzzle has one solution."""

from collections.abc import Iterable, Mapping, Sequence

Cell = tuple[int, int]
"""(row, column)."""

_Candidates = dict[Cell, frozenset[int]]

ENOUGH = 2
"""Counting stops here."""


class _TooManyStepsError(Exception):
    pass


class _Filling:
    """A grid's cells, who must differ from whom, and who must be less than whom."""

    def __init__(self, groups: Iterable[Sequence[Cell]], smaller: Sequence[tuple[Cell, Cell]], max_steps: int) -> None:
        self._peers: dict[Cell, set[Cell]] = {}
        for group in groups:
            for cell in group:
                self._peers.setdefault(cell, set()).update(set(group) - {cell})
        self._smaller = smaller
        self._steps_left = max_steps

    def count(self, candidates: _Candidates) -> int:
        """Depth-first search on the cell with the fewest candidates."""
        self._steps_left -= 1
        if self._steps_left < 0:
            raise _TooManyStepsError
        narrowed = self._narrowed(candidates)
        if narrowed is None:
            return 0
        open_cells = [cell for cell, values in narrowed.items() if len(values) > 1]
        if not open_cells:
            return 1
        cell = min(open_cells, key=lambda open_cell: (len(narrowed[open_cell]), open_cell))
        total = 0
        for value in sorted(narrowed[cell]):
            total += self.count(narrowed | {cell: frozenset({value})})
            if total >= ENOUGH:
                return ENOUGH
        return total

    def _narrowed(self, candidates: _Candidates) -> _Candidates | None:
        """The candidates after every direct consequence; None where a cell is left without any."""
        narrowed = dict(candidates)
        changed = True
        while changed:
            changed = False
            for cell, values in narrowed.items():
                left = values.difference(*(narrowed[peer] for peer in self._peers[cell] if len(narrowed[peer]) == 1))
                if not left:
                    return None
                if left != values:
                    narrowed[cell], changed = left, True
            for low, high in self._smaller:
                lower = frozenset(value for value in narrowed[low] if value < max(narrowed[high]))
                higher = frozenset(value for value in narrowed[high] if lower and value > min(lower))
                if not lower or not higher:
                    return None
                changed = changed or (lower, higher) != (narrowed[low], narrowed[high])
                narrowed[low], narrowed[high] = lower, higher
        return narrowed


def count_fillings(
    givens: Mapping[Cell, int],
    groups: Sequence[Sequence[Cell]],
    *,
    smaller: Sequence[tuple[Cell, Cell]] = (),
    size: int,
    max_steps: int,
) -> int | None:
    """0, 1, or 2 for two or more; None where counting takes more than ``max_steps`` steps of the search.

    Args:
        givens: the numbers that stand there.
        groups: cells that must all differ; every cell is in one.
        smaller: pairs of cells of which the first holds less.
        size: numbers are 1 to ``size``.
        max_steps: steps are counted and not timed, so that the result is the same on a busy machine.
    """
    numbers = frozenset(range(1, size + 1))
    cells = {cell for group in groups for cell in group}
    candidates = {cell: frozenset({givens[cell]}) if cell in givens else numbers for cell in sorted(cells)}
    try:
        return _Filling(groups, smaller, max_steps).count(candidates)
    except _TooManyStepsError:
        return None
