"""Puzzles of moving about on a drawn board: shortest_path, knight_swap, rush_hour."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from raydebm.constraints import Exactness
from raydebm.tasks.reasoning_gym.rules.puzzle import ExactPuzzle, PuzzleFault, RulePuzzle

MAX_STATES = 50_000
"""States in a search for the shortest solution; counted, not timed."""

_PATH = re.compile(
    r"Your task is to find the shortest path from the start to the destination point in a grid\..*?"
    r"in the following grid:\n(?P<rows>[*#OX](?: [*#OX])*(?:\n[*#OX](?: [*#OX])*)*)\s*\Z",
    re.DOTALL,
)
_STEPS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
_KNIGHTS = re.compile(
    r"Knight Swap Challenge:\n\n```\n(?P<board>.*?)```.*?^3\. (?P<first>[wB]) moves first", re.S | re.M
)
_BOARD_ROW = re.compile(r"(\d) \|((?: .? \|)+)")
_KNIGHT_MOVE = re.compile(r"\s*([wB])\s*,\s*([A-Z]\d)\s*,\s*([A-Z]\d)\s*")
_RUSH = re.compile(
    r"Move the red car \(AA\) to the exit on the right\..*?Board:\n(?P<rows>[A-Zx.]{6}(?:\n[A-Zx.]{6}){5})", re.S
)
_CAR_MOVE = re.compile(r"([A-Z])\1*([+-])(\d{1,2})")
_SIDE = 6
_EXIT = 2 * _SIDE + _SIDE - 1
"""The last cell of the third row, which the red car must reach."""

Knights = tuple[frozenset[str], frozenset[str], str]
"""(squares of the white ones, of the black ones, who moves)."""


@dataclass(frozen=True)
class ShortestPath(ExactPuzzle):
    """From ``*`` to ``#`` over cells that are not ``X``, in the fewest steps; "infeasible" where there is no way."""

    rows: tuple[str, ...]

    def faults(self, answer: str) -> Iterator[PuzzleFault]:
        """See ``Puzzle``."""
        if answer == "infeasible" or self._fewest is None:
            if answer != "infeasible":
                yield PuzzleFault(1.0, "No path leads to the destination; the answer must be infeasible.")
            elif self._fewest is not None:
                yield PuzzleFault(1.0, f"There is a path of {self._fewest} steps.")
            return
        steps = answer.split()
        if not set(steps) <= set(_STEPS):
            yield PuzzleFault(
                1.0, "The answer must be directions alone: up, down, left and right, separated by spaces."
            )
            return
        cell = self._find("*")
        for number, step in enumerate(steps, start=1):
            cell = (cell[0] + _STEPS[step][0], cell[1] + _STEPS[step][1])
            if cell not in self._open:
                yield PuzzleFault(1.0, f"Step {number}, {step}, leads into a blocked cell or off the grid.")
                return
        if cell != self._find("#"):
            yield PuzzleFault(0.5, "The path does not end at the destination.")
        elif len(steps) > self._fewest:
            yield PuzzleFault(0.25, f"The path has {len(steps)} steps; {self._fewest} are enough.")

    def _find(self, mark: str) -> tuple[int, int]:
        return next((row, line.index(mark)) for row, line in enumerate(self.rows) if mark in line)

    @cached_property
    def _open(self) -> frozenset[tuple[int, int]]:
        return frozenset(
            (row, column) for row, line in enumerate(self.rows) for column, mark in enumerate(line) if mark != "X"
        )

    @cached_property
    def _fewest(self) -> int | None:
        """Breadth first; None where the destination cannot be reached."""
        seen = reached = {self._find("*")}
        steps = 0
        while reached:
            if self._find("#") in reached:
                return steps
            around = {(row + down, column + right) for row, column in reached for down, right in _STEPS.values()}
            reached = (around & self._open) - seen
            seen = seen | reached
            steps += 1
        return None


@dataclass(frozen=True)
class KnightSwap:
    """White and black knights change places, taking turns, in the fewest moves; "No" where they cannot.

    The question does not ask for the fewest moves, but the data set counts a longer solution as wrong.
    """

    squares: frozenset[str]
    white: frozenset[str]
    black: frozenset[str]
    first: str

    def faults(self, answer: str) -> Iterator[PuzzleFault]:
        if answer.lower() == "no":
            if self._fewest is not None:
                yield PuzzleFault(1.0, f"It is possible, in {self._fewest} moves.")
            return
        moves = _knight_moves(answer)
        if moves is None:
            yield PuzzleFault(1.0, 'The answer must be No, or a JSON list of moves such as ["w,A1,B3"].')
            return
        state: Knights = (self.white, self.black, self.first)
        for number, (color, start, end) in enumerate(moves, start=1):
            after = self._after(state).get((color, start, end))
            if after is None:
                yield PuzzleFault(1.0, f"Move {number}, {color} from {start} to {end}, is not allowed there.")
                return
            state = after
        if state[:2] != (self.black, self.white):
            yield PuzzleFault(0.5, "After the moves the knights have not changed places.")
        elif self._fewest is not None and len(moves) > self._fewest:
            yield PuzzleFault(0.25, f"The solution takes {len(moves)} moves; {self._fewest} are enough.")

    def exactness(self) -> Exactness:
        if self._search[1]:
            return Exactness(exact=True)
        return Exactness(exact=False, note=f"whether the swap is possible was not settled in {MAX_STATES} states")

    @property
    def _fewest(self) -> int | None:
        return self._search[0]

    @cached_property
    def _search(self) -> tuple[int | None, bool]:
        """(fewest moves or None, whether the search came to an end), breadth first."""
        seen: set[Knights] = {(self.white, self.black, self.first)}
        reached, moves = seen, 0
        while reached and len(seen) <= MAX_STATES:
            if any(state[:2] == (self.black, self.white) for state in reached):
                return moves, True
            reached = {after for state in reached for after in self._after(state).values()} - seen
            seen = seen | reached
            moves += 1
        return None, not reached

    def _after(self, state: Knights) -> dict[tuple[str, str, str], Knights]:
        """The states that one move leads to, by the move."""
        white, black, turn = state
        own = white if turn == "w" else black
        after: dict[tuple[str, str, str], Knights] = {}
        for start in own:
            for end in self.squares - white - black:
                if {abs(ord(start[0]) - ord(end[0])), abs(int(start[1]) - int(end[1]))} == {1, 2}:
                    moved = own - {start} | {end}
                    sides = (moved, black, "B") if turn == "w" else (white, moved, "w")
                    after[turn, start, end] = sides
        return after


@dataclass(frozen=True, slots=True)
class RushHour(ExactPuzzle):
    """Cars that move along their own direction; the red one, A, must reach the exit."""

    cars: Mapping[str, tuple[int, ...]]
    """Cells of each car, in order; a cell is row * 6 + column."""
    walls: frozenset[int]

    def faults(self, answer: str) -> Iterator[PuzzleFault]:
        moves = _CAR_MOVE.findall(answer)
        if not moves:
            yield PuzzleFault(1.0, "The answer must be moves such as F+1 K-2, one after the other.")
            return
        cars = dict(self.cars)
        for car, sign, count in moves:
            for _ in range(int(count)):
                if car not in cars or not self._moved(cars, car, forward=sign == "+"):
                    yield PuzzleFault(1.0, f"{car}{sign}{count} is not possible when it is made.")
                    return
        if _EXIT not in cars["A"]:
            yield PuzzleFault(0.5, "After the moves the red car is not at the exit.")

    def _moved(self, cars: dict[str, tuple[int, ...]], car: str, *, forward: bool) -> bool:
        """Move a car by one cell, if nothing is in its way."""
        cells = cars[car]
        stride = cells[1] - cells[0]
        before, after = (cells[-1], cells[-1] + stride) if forward else (cells[0], cells[0] - stride)
        is_inside = 0 <= after < _SIDE * _SIDE and (stride == _SIDE or before // _SIDE == after // _SIDE)
        taken = self.walls.union(*(other for name, other in cars.items() if name != car))
        if not is_inside or after in taken:
            return False
        cars[car] = (*cells[1:], after) if forward else (after, *cells[:-1])
        return True


def read_path(question: str) -> RulePuzzle | None:
    """The puzzle of a question about the shortest path; None for any other."""
    match = _PATH.match(question)
    if match is None:
        return None
    rows = tuple(line.replace(" ", "") for line in match["rows"].split("\n"))
    text = "".join(rows)
    return ShortestPath(rows) if (text.count("*"), text.count("#")) == (1, 1) else None


def read_knights(question: str) -> RulePuzzle | None:
    """The puzzle of a question about swapping knights; None for any other."""
    match = _KNIGHTS.match(question)
    if match is None:
        return None
    on: dict[str, str] = {}
    for number, cells in _BOARD_ROW.findall(match["board"]):
        for column, cell in enumerate(cells.split("|")[:-1]):
            if cell.strip():
                on[f"{chr(ord('A') + column)}{number}"] = cell.strip()
    squares = {mark: frozenset(square for square, content in on.items() if content == mark) for mark in "wB."}
    if not squares["w"] or len(squares["w"]) != len(squares["B"]):
        return None
    return KnightSwap(frozenset(on), squares["w"], squares["B"], match["first"])


def read_rush_hour(question: str) -> RulePuzzle | None:
    """The puzzle of a Rush Hour question; None for any other."""
    match = _RUSH.match(question)
    if match is None:
        return None
    board = match["rows"].replace("\n", "")
    cars = {
        name: tuple(cell for cell, mark in enumerate(board) if mark == name) for name in sorted(set(board) - set("x."))
    }
    straight = all(
        len(cells) > 1
        and len({after - before for before, after in pairwise(cells)}) == 1
        and cells[1] - cells[0] in (1, _SIDE)
        for cells in cars.values()
    )
    walls = frozenset(cell for cell, mark in enumerate(board) if mark == "x")
    return RushHour(cars, walls) if straight and "A" in cars else None


def _knight_moves(answer: str) -> list[tuple[str, str, str]] | None:
    try:
        parsed = json.loads(answer)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, list):
        return None
    moves = [_KNIGHT_MOVE.fullmatch(move) if isinstance(move, str) else None for move in parsed]
    read = [(move[1], move[2], move[3]) for move in moves if move is not None]
    return read if len(read) == len(moves) else None
