"""What the problems of the served runs look like, so that a question can be given to the run that knows its like.

In:   the problems of each run, by task.
Out:  of a text: its nearest known problems, and whether it is as near to a task as the task's own problems are.
Does not know: HTTP, Ray, models.

Texts are compared by the cosine of their words, numbers taken for one word, weighted by how rare a word is (tf-idf):
no model, no randomness, and the same on every replica.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raydebm.errors import RaydebmError
from raydebm.records import Problem

NOT_A_PROBLEM = (RaydebmError, KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError)
"""What a task may raise about a text or about ``data`` that is no problem of its own."""
Read = Callable[[str], Problem]
"""Reads a text as a problem of one task (``Task.problem_from_text``)."""
MAX_PROBLEMS = 1000
"""Problems of one task that are compared, taken evenly over its table: more make the start slower and the comparison
hardly better."""
MAX_FOREIGN = 100
"""Problems of one other task that a reader is tried on."""
MIN_FOREIGN = 20
"""With fewer, a reader that refuses them all may refuse them by chance."""
NUM_NEAREST = 10
NOVEL_FRAC = 0.05
"""A question that is farther from a task's problems than all but this share of them are from each other is not of
this task: so large a share of a task's own questions is lost to the general task."""

_WORD = re.compile(r"[^\W\d_]+|\d+(?:[.,]\d+)*")
_NUMBER = "#"


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """How a text compares with the known problems of some tasks."""

    nearest: Mapping[str, int]
    """How many of the ``NUM_NEAREST`` most similar known problems each task has; tasks without any are absent."""
    closest: Mapping[str, float]
    """Cosine with the most similar problem of each task, 0 to 1."""


class KnownProblems:
    """An index of problems. Immutable once made; plain arrays, so that it can be sent to replicas."""

    def __init__(self, problems: Mapping[str, Sequence[Problem]], readers: Mapping[str, Read] | None = None) -> None:
        """
        Args:
            problems: by task; of more than ``MAX_PROBLEMS`` of a task, as many spread evenly.
            readers: of the tasks; None: nothing is known about what they refuse.
        """
        self.tasks = tuple(problems)
        """Their names, in the order of the problems."""
        samples = {name: spread(of_task, MAX_PROBLEMS) for name, of_task in problems.items()}
        self.refused: Mapping[str, int] = {
            name: _refused(name, read, samples) for name, read in (readers or {}).items()
        }
        """Known problems of other tasks that a task's reader was tried on, where it read none of them; else 0."""
        counts = [Counter(words_of(problem.prompt)) for sample in samples.values() for problem in sample]
        self._owner = np.repeat(np.arange(len(samples)), [len(sample) for sample in samples.values()])
        self._rarity = _rarities(counts)
        postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
        vectors = [self._vector(count) for count in counts]
        for row, vector in enumerate(vectors):
            for word, weight in vector.items():
                postings[word].append((row, weight))
        self._rows = {word: np.array([row for row, _ in pairs]) for word, pairs in postings.items()}
        self._weights = {word: np.array([weight for _, weight in pairs]) for word, pairs in postings.items()}
        self._novel_below = {name: self._least_own(index, vectors) for index, name in enumerate(self.tasks)}

    def likeness(self, text: str, tasks: Sequence[str]) -> Likeness:
        """Compare a text with the known problems of these tasks alone."""
        cosine = self._cosines(self._vector(Counter(words_of(text))))
        wanted = [index for index, name in enumerate(self.tasks) if name in tasks]
        cosine[~np.isin(self._owner, wanted)] = -1.0
        order = np.argsort(-cosine, kind="stable")[:NUM_NEAREST]
        owners = [self.tasks[self._owner[row]] for row in order if cosine[row] > 0]
        closest = {name: self._closest(cosine, index) for index, name in enumerate(self.tasks) if index in wanted}
        return Likeness(nearest=Counter(owners), closest=closest)

    def least(self, task: str) -> float:
        """The cosine with the closest problem below which a text is none of the task's; 0 where too few are known."""
        return self._novel_below.get(task, 0.0)

    def _closest(self, cosine: NDArray[np.float64], index: int) -> float:
        own = cosine[self._owner == index]
        return float(max(0.0, own.max())) if len(own) else 0.0

    def _least_own(self, index: int, vectors: Sequence[Mapping[str, float]]) -> float:
        """The ``NOVEL_FRAC`` quantile of the cosines of the task's problems with the closest other one."""
        rows = np.flatnonzero(self._owner == index)
        if len(rows) < 1 / NOVEL_FRAC:  # too few to say what is far
            return 0.0
        cosines = []
        for row in rows.tolist():
            cosine = self._cosines(vectors[row])
            cosine[row] = 0.0
            cosines.append(cosine[rows].max())
        return float(np.quantile(cosines, NOVEL_FRAC, method="lower"))

    def _cosines(self, vector: Mapping[str, float]) -> NDArray[np.float64]:
        """With every known problem, (N,)."""
        cosines = np.zeros(len(self._owner))
        for word, weight in vector.items():
            if word in self._rows:
                cosines[self._rows[word]] += weight * self._weights[word]
        return cosines

    def _vector(self, counts: Mapping[str, int]) -> Mapping[str, float]:
        """Unit weights by word; empty for a text without words. A word that no problem has is as rare as can be."""
        unseen = math.log(1 + len(self._owner))
        weights = {word: (1 + math.log(count)) * self._rarity.get(word, unseen) for word, count in counts.items()}
        norm = math.sqrt(math.fsum(weight * weight for weight in weights.values()))
        return {word: weight / norm for word, weight in weights.items()} if norm else {}


def words_of(text: str) -> list[str]:
    """The words of a text without case; every number is the same word."""
    return [_NUMBER if word[0].isdigit() else word.casefold() for word in _WORD.findall(text)]


def _rarities(counts: Sequence[Mapping[str, int]]) -> dict[str, float]:
    """log((1 + N) / (1 + n_w)) + a little, so that a word of every problem still counts something."""
    holding = Counter(word for words in counts for word in words)
    return {word: math.log((1 + len(counts)) / (1 + count)) + 0.1 for word, count in holding.items()}


def spread(problems: Sequence[Problem], most: int) -> tuple[Problem, ...]:
    """At most so many of the problems, evenly over their order."""
    if len(problems) <= most:
        return tuple(problems)
    return tuple(problems[round(place)] for place in np.linspace(0, len(problems) - 1, most))


def _refused(task: str, read: Read, problems: Mapping[str, Sequence[Problem]]) -> int:
    foreign = [
        each.prompt for name, of_task in problems.items() if name != task for each in spread(of_task, MAX_FOREIGN)
    ]
    if len(foreign) < MIN_FOREIGN or any(_can_read(read, text) for text in foreign):
        return 0
    return len(foreign)


def _can_read(read: Read, text: str) -> bool:
    try:
        read(text)
    except NOT_A_PROBLEM:
        return False
    return True
