"""What a rule is: a puzzle that was read from its question, and that can judge any answer to it.

In:   the question as the task's data sets word it, and an answer as text.
Out:  faults, each with a penalty and a sentence; no fault means that the answer keeps every rule of the question.
Does not know: gold, candidates, the package that made the question.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from raydebm.constraints import Exactness

MAX_ANSWER_CHARS = 20_000
"""A longer answer is a fault of its own: no puzzle here needs more, and checking must stay cheap."""


@dataclass(frozen=True, slots=True)
class PuzzleFault:
    """One broken rule."""

    penalty: float
    """In (0, 1]."""
    text: str
    """A sentence that a model can act on."""


class RulePuzzle(Protocol):
    """A question in a form that answers can be checked against."""

    def faults(self, answer: str) -> Iterator[PuzzleFault]:
        """Broken rules; none exactly when the answer is acceptable. Never raises, whatever the text."""
        ...

    def exactness(self) -> Exactness:
        """Whether an answer without faults is right and one with faults wrong."""
        ...


Reader = Callable[[str], RulePuzzle | None]
"""Reads a question; None when it is not worded as that data set words it."""


class ExactPuzzle:
    """Base of puzzles for which keeping the rules is all that is asked."""

    __slots__ = ()

    def exactness(self) -> Exactness:
        """Exact, without a condition."""
        return Exactness(exact=True)
