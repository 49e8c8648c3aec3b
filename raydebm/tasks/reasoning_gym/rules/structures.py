"""Puzzles about words and graphs: graph_color, palindrome_generation, word_ladder."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from raydebm.constraints import Exactness
from raydebm.tasks.reasoning_gym.rules.puzzle import ExactPuzzle, PuzzleFault, RulePuzzle

_GRAPH = re.compile(
    r"Please provide a coloring for this graph.*?Vertices: \[(?P<vertices>[\d, ]+)\]\n"
    r"Edges: \[(?P<edges>[\d, ()]*)\]\nPossible colors: \[(?P<colors>[\d, ]+)\]",
    re.DOTALL,
)
_PALINDROME = re.compile(
    r"Your task is, given a list of letters, to form a valid palindrome\..*?"
    r"using the following letters: (?P<letters>[a-z](?:, [a-z])*)\Z",
    re.DOTALL,
)
_LADDER = re.compile(
    r"Transform the word ladder '(?P<start>[A-Z]+)' to '(?P<end>[A-Z]+)' by changing one letter at a time\."
)


@dataclass(frozen=True, slots=True)
class Coloring(ExactPuzzle):
    """A colour for each vertex, so that no edge joins two of the same colour."""

    vertices: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    colors: tuple[int, ...]

    def faults(self, answer: str) -> Iterator[PuzzleFault]:
        coloring = _json(answer)
        if not isinstance(coloring, dict):
            yield PuzzleFault(1.0, 'The answer must be a JSON map of vertices to colors, such as {"0": 1, "1": 2}.')
            return
        color_of = {vertex: coloring.get(str(vertex)) for vertex in self.vertices}
        bad = [vertex for vertex, color in color_of.items() if not _is_one_of(color, self.colors)]
        if bad:
            yield PuzzleFault(0.5 * len(bad) / len(self.vertices), f"Vertex {bad[0]} must have one of {self.colors}.")
        same = [(first, second) for first, second in self.edges if color_of[first] == color_of[second]]
        if same:
            first, second = same[0]
            text = f"Vertices {first} and {second} are joined and both have color {color_of[first]}."
            yield PuzzleFault(0.5 * len(same) / len(self.edges), text)


@dataclass(frozen=True, slots=True)
class Palindrome(ExactPuzzle):
    """A word of the given letters, each as often as given, that reads the same backwards."""

    letters: str

    def faults(self, answer: str) -> Iterator[PuzzleFault]:
        word = answer.lower()
        wrong = (Counter(word) - Counter(self.letters)) + (Counter(self.letters) - Counter(word))
        if wrong:
            penalty = 0.5 * min(1.0, wrong.total() / len(self.letters))
            yield PuzzleFault(penalty, f"The answer must use exactly the letters {', '.join(self.letters)}.")
        if word != word[::-1]:
            yield PuzzleFault(0.5, f"{answer[:40]!r} does not read the same backwards.")


@dataclass(frozen=True, slots=True)
class Ladder:
    """Words from start to end, each one letter away from the word before."""

    start: str
    end: str

    def faults(self, answer: str) -> Iterator[PuzzleFault]:
        words = [word.strip() for word in answer.upper().split(",")]
        if len(words) < 2 or (words[0], words[-1]) != (self.start, self.end):
            yield PuzzleFault(0.5, f"The answer must be words separated by commas, from {self.start} to {self.end}.")
        far = [(before, after) for before, after in pairwise(words) if not _is_step(before, after)]
        if far:
            before, after = (word[:40] for word in far[0])
            yield PuzzleFault(0.5 * len(far) / len(words), f"{before} and {after} do not differ in exactly one letter.")

    def exactness(self) -> Exactness:
        return Exactness(exact=False, note="whether every step is an English word is not checked")


def read_coloring(question: str) -> RulePuzzle | None:
    """The puzzle of a question about a graph's colouring; None for any other."""
    match = _GRAPH.match(question)
    if match is None:
        return None
    vertices, colors = (tuple(map(int, re.findall(r"\d+", match[name]))) for name in ("vertices", "colors"))
    edges = tuple((int(first), int(second)) for first, second in re.findall(r"\((\d+), (\d+)\)", match["edges"]))
    return Coloring(vertices, edges, colors) if {end for edge in edges for end in edge} <= set(vertices) else None


def read_palindrome(question: str) -> RulePuzzle | None:
    """The puzzle of a question about a palindrome; None for any other."""
    match = _PALINDROME.match(question)
    return None if match is None else Palindrome(match["letters"].replace(", ", ""))


def read_ladder(question: str) -> RulePuzzle | None:
    """The puzzle of a question about a word ladder; None for any other."""
    match = _LADDER.match(question)
    return None if match is None else Ladder(match["start"], match["end"])


def _json(text: str) -> object:
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed


def _is_one_of(color: object, colors: tuple[int, ...]) -> bool:
    return isinstance(color, int | float) and color in colors


def _is_step(before: str, after: str) -> bool:
    return len(before) == len(after) and sum(a != b for a, b in zip(before, after, strict=True)) == 1
