"""Puzzles on a square board whose blanks are filled in: sudoku, mini_sudoku, futoshiki, n_queens."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from raydebm.constraints import Exactness
from raydebm.tasks.reasoning_gym.rules.filling import Cell, count_fillings
from raydebm.tasks.reasoning_gym.rules.puzzle import ExactPuzzle, PuzzleFault, RulePuzzle

MAX_STEPS = 2_000
"""Steps of counting a grid's solutions; the sudokus of the package take below 50."""

_SUDOKU = re.compile(r"Solve this Sudoku puzzle:\n(?P<rows>(?:[1-9_](?: [1-9_]){8}\n){9})")
_MINI_SUDOKU = re.compile(
    r"In 4x4 Mini Sudoku:.*?Solve this 4x4 Mini Sudoku puzzle:\n(?P<rows>(?:[1-4_](?: [1-4_]){3}\n){4})", re.DOTALL
)
_FUTOSHIKI = re.compile(
    r"Solve the following (?P<size>[4-9])x(?P=size) Futoshiki puzzle:\n\n(?P<rows>[^a-zA-Z]*?)\n\nEnsure", re.DOTALL
)
_QUEENS = re.compile(
    r"Your job is to complete an n x n chess board with n Queens.*?no two queens attack each other\.\n"
    r"(?P<rows>[Q_](?: [Q_])+(?:\n[Q_](?: [Q_])+)+)",
    re.DOTALL,
)
_SIGNS = {"<": (0, 1), "\N{LOGICAL AND}": (0, 1), ">": (1, 0), "\N{LOGICAL OR}": (1, 0)}
"""Which of two neighbours is the smaller one, and which the greater: (left or upper: 0, right or lower: 1)."""
_SPACING = 4
"""Columns of the text from one cell of a futoshiki to the next."""


@dataclass(frozen=True)
class NumberGrid:
    """Numbers from 1 to n, each once in every row, column and box, that keep to signs between neighbours."""

    lines: tuple[str, ...]
    """The puzzle as drawn, blanks as ``_``, without spaces at the ends of lines."""
    givens: tuple[tuple[int, ...], ...]
    """By row; 0 where the cell is blank."""
    box: int = 0
    """Side of a box; 0: there are none."""
    smaller: tuple[tuple[Cell, Cell], ...] = ()
    """The first cell holds less than the second."""

    def faults(self, answer: str) -> Iterator[PuzzleFault]:
        lines = [line.rstrip() for line in answer.split("\n")]
        grid = self._read(lines)
        if grid is None:
            size = len(self.givens)
            yield PuzzleFault(
                1.0, f"The answer must be the whole grid, {size} rows of {size} numbers from 1 to {size}."
            )
            return
        changed = next((cell for cell, number in self._given.items() if grid[cell] != number), None)
        if changed is not None:
            yield PuzzleFault(1.0, f"{_place(changed)} must stay {self._given[changed]}.")
            return
        broken = [name for name, group in self._groups.items() if len({grid[cell] for cell in group}) < len(group)]
        for name in broken:
            yield PuzzleFault(0.5 / len(self._groups), f"In {name} a number stands twice.")
        for low, high in self.smaller:
            if grid[low] >= grid[high]:
                yield PuzzleFault(0.5 / len(self.smaller), f"{_place(low)} must hold less than {_place(high).lower()}.")
        if not broken and lines != self._drawn(grid):
            yield PuzzleFault(
                0.1, "The numbers must stand in the layout of the puzzle, with its spaces, lines and signs."
            )

    def exactness(self) -> Exactness:
        """Exact for a grid with one solution, where counting them takes no more than ``MAX_STEPS`` steps."""
        if self._num_solutions == 1:
            return Exactness(exact=True)
        if self._num_solutions is None:
            return Exactness(exact=False, note=f"counting the grid's solutions takes more than {MAX_STEPS} steps")
        count = "no solution" if self._num_solutions == 0 else "several solutions"
        return Exactness(exact=False, note=f"the grid has {count}")

    @cached_property
    def _given(self) -> dict[Cell, int]:
        return {
            (row, column): number
            for row, numbers in enumerate(self.givens)
            for column, number in enumerate(numbers)
            if number
        }

    @cached_property
    def _groups(self) -> dict[str, list[Cell]]:
        size = range(len(self.givens))
        groups = {f"row {row + 1}": [(row, column) for column in size] for row in size}
        groups |= {f"column {column + 1}": [(row, column) for row in size] for column in size}
        for row in size if self.box else ():
            for column in size:
                name = f"the box at row {row // self.box * self.box + 1}, column {column // self.box * self.box + 1}"
                groups.setdefault(name, []).append((row, column))
        return groups

    @cached_property
    def _num_solutions(self) -> int | None:
        size, groups = len(self.givens), list(self._groups.values())
        return count_fillings(self._given, groups, smaller=self.smaller, size=size, max_steps=MAX_STEPS)

    def _read(self, lines: Sequence[str]) -> dict[Cell, int] | None:
        """The numbers of those lines that have any; None where they are not n rows of n numbers from 1 to n."""
        rows = [row for line in lines if (row := [int(digit) for digit in re.findall(r"[0-9]", line)])]
        size = len(self.givens)
        if len(rows) != size or any(len(row) != size or not all(1 <= number <= size for number in row) for row in rows):
            return None
        return {(row, column): number for row, numbers in enumerate(rows) for column, number in enumerate(numbers)}

    def _drawn(self, grid: dict[Cell, int]) -> list[str]:
        """The puzzle's lines with the blanks filled in."""
        numbers = iter([number for cell, number in grid.items() if cell not in self._given])
        return [re.sub("_", lambda _: str(next(numbers)), line) for line in self.lines]


@dataclass(frozen=True, slots=True)
class Queens(ExactPuzzle):
    """A board on which queens stand that must stay; as many queens as rows, none attacking another."""

    rows: tuple[str, ...]
    """Such as ``"_ Q _ _"``."""

    def faults(self, answer: str) -> Iterator[PuzzleFault]:
        lines, size = answer.split("\n"), len(self.rows)
        row_form = re.compile(rf"[Q_](?: [Q_]){{{size - 1}}}")
        if len(lines) != size or not all(row_form.fullmatch(line) for line in lines):
            yield PuzzleFault(1.0, f"The answer must be the whole board, {size} lines such as {self.rows[0]!r}.")
            return
        queens, fixed = _queens(lines), _queens(self.rows)
        moved = sorted(set(fixed) - set(queens))
        if moved:
            yield PuzzleFault(0.5, f"The queen at {_place(moved[0]).lower()} must stay.")
        if len(queens) != size:
            yield PuzzleFault(0.5, f"The board must hold {size} queens, not {len(queens)}.")
        attacks = [pair for pair in combinations(queens, 2) if _attack(*pair)]
        if attacks:
            first, second = (_place(queen).lower() for queen in attacks[0])
            yield PuzzleFault(min(1.0, len(attacks) / size), f"The queens at {first} and {second} attack each other.")


def read_sudoku(question: str) -> RulePuzzle | None:
    """The puzzle of a Sudoku question; None for any other."""
    match = _SUDOKU.match(question)
    return None if match is None else _boxed(match["rows"], box=3)


def read_mini_sudoku(question: str) -> RulePuzzle | None:
    """The puzzle of a Sudoku question with boxes of two; None for any other."""
    match = _MINI_SUDOKU.match(question)
    return None if match is None else _boxed(match["rows"], box=2)


def read_futoshiki(question: str) -> RulePuzzle | None:
    """The puzzle of a Futoshiki question; None for any other."""
    match = _FUTOSHIKI.match(question)
    if match is None:
        return None
    lines, size = match["rows"].split("\n"), int(match["size"])
    givens = tuple(_numbers(line) for line in lines[::2])
    if len(lines) != 2 * size - 1 or any(len(row) != size for row in givens):
        return None
    drawn = tuple(line.rstrip() for line in lines)
    return NumberGrid(lines=drawn, givens=givens, smaller=tuple(_inequalities(lines, size)))


def read_queens(question: str) -> RulePuzzle | None:
    """The puzzle of a question about queens; None for any other."""
    match = _QUEENS.match(question)
    if match is None:
        return None
    rows = tuple(match["rows"].split("\n"))
    return Queens(rows) if all(len(row) == 2 * len(rows) - 1 for row in rows) else None


def _boxed(rows: str, *, box: int) -> NumberGrid:
    lines = tuple(rows.rstrip("\n").split("\n"))
    return NumberGrid(lines=lines, givens=tuple(_numbers(line) for line in lines), box=box)


def _numbers(line: str) -> tuple[int, ...]:
    return tuple(int(cell) if cell.isdigit() else 0 for cell in re.findall(r"[1-9_]", line))


def _inequalities(lines: Sequence[str], size: int) -> Iterator[tuple[Cell, Cell]]:
    """Signs stand between two cells of a row, or in the line between two rows below a cell."""
    for number, line in enumerate(lines):
        row, between = divmod(number, 2)
        for column in range(size):
            position = _SPACING * column + (0 if between else _SPACING // 2)
            sign = line[position : position + 1]
            if sign in _SIGNS and sign:
                neighbours = ((row, column), (row + 1, column) if between else (row, column + 1))
                low, high = _SIGNS[sign]
                yield neighbours[low], neighbours[high]


def _queens(lines: Sequence[str]) -> list[Cell]:
    return [(row, column) for row, line in enumerate(lines) for column, mark in enumerate(line[::2]) if mark == "Q"]


def _attack(first: Cell, second: Cell) -> bool:
    rows, columns = abs(first[0] - second[0]), abs(first[1] - second[1])
    return rows == 0 or columns == 0 or rows == columns


def _place(cell: Cell) -> str:
    return f"Row {cell[0] + 1}, column {cell[1] + 1}"
