"""Rules of questions that can be checked without a reference answer, read from the question's own words.

An answer that keeps the rules is right and one that breaks them is wrong, wherever the puzzle says that it is exact:
any expression that reaches the number, any colouring, any list of moves that solves the puzzle.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from raydebm.tasks.reasoning_gym.rules.boards import read_knights, read_path, read_rush_hour
from raydebm.tasks.reasoning_gym.rules.grids import read_futoshiki, read_mini_sudoku, read_queens, read_sudoku
from raydebm.tasks.reasoning_gym.rules.moves import read_hanoi, read_jugs, read_lock
from raydebm.tasks.reasoning_gym.rules.numbers import (
    read_countdown,
    read_cryptarithm,
    read_equation,
    read_factorization,
    read_puzzle24,
)
from raydebm.tasks.reasoning_gym.rules.puzzle import MAX_ANSWER_CHARS, PuzzleFault, Reader, RulePuzzle
from raydebm.tasks.reasoning_gym.rules.structures import read_coloring, read_ladder, read_palindrome

__all__ = ["MAX_ANSWER_CHARS", "READERS", "PuzzleFault", "RulePuzzle", "read_puzzle"]

READERS: Mapping[str, Reader] = MappingProxyType(
    {
        "countdown": read_countdown,
        "cryptarithm": read_cryptarithm,
        "futoshiki": read_futoshiki,
        "graph_color": read_coloring,
        "jugs": read_jugs,
        "knight_swap": read_knights,
        "mini_sudoku": read_mini_sudoku,
        "n_queens": read_queens,
        "palindrome_generation": read_palindrome,
        "prime_factorization": read_factorization,
        "puzzle24": read_puzzle24,
        "quantum_lock": read_lock,
        "rush_hour": read_rush_hour,
        "shortest_path": read_path,
        "simple_equations": read_equation,
        "sudoku": read_sudoku,
        "tower_of_hanoi": read_hanoi,
        "word_ladder": read_ladder,
    }
)
"""By the name of the data set."""


@lru_cache(maxsize=4096)
def read_puzzle(question: str) -> tuple[str, RulePuzzle] | None:
    """The data set whose wording a question has, and its puzzle; None for a question without rules to check.

    Cached: every candidate of a problem asks for it.
    """
    readings = ((name, reader(question)) for name, reader in READERS.items())
    return next(((name, puzzle) for name, puzzle in readings if puzzle is not None), None)
