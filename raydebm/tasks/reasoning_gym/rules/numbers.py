"""Puzzles about numbers: countdown, puzzle24, prime_factorization, simple_equations, cryptarithm."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from raydebm.constraints import Exactness
from raydebm.tasks.reasoning_gym.rules.arithmetic import ExpressionError, evaluate
from raydebm.tasks.reasoning_gym.rules.puzzle import ExactPuzzle, PuzzleFault, RulePuzzle

_COUNTDOWN = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?:Find a way to make|Calculate) (?P<target>-?\d{1,12}) using all of these numbers: (?P<numbers>[\d, -]+)\.",
        r"Using all the numbers (?P<numbers>[\d, -]+), create an expression that equals (?P<target>-?\d{1,12})\.",
    )
)
_PUZZLE24 = re.compile(r"Make 24 using (?P<numbers>[\d, ]+)\. You can only use each number once\.")
_TIMES = "\N{MULTIPLICATION SIGN}"
_FACTORS = re.compile(rf"Find the prime factorization of (\d{{1,12}})\. Write the factors separated by {_TIMES}")
_EQUATION = re.compile(
    r"(?:Find the value of (?P<found>[a-z]) in the equation|Solve for (?P<solved>[a-z])"
    r"|Determine the value of (?P<determined>[a-z]) that satisfies): (?P<left>[^=\n]+) = (?P<right>[^=\n]+)\Z"
)
_ADDENDS = re.compile(r"Solve this cryptarithm:\s*\n(?P<addends>(?:[ +]*[A-Z]+\n)+)-+\n *(?P<total>[A-Z]+)\n")
_MAPPING = re.compile(r"\s*([A-Z])\s*=\s*(-?\d{1,3})\s*")
_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,17})")
_FACTOR = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True, slots=True)
class MakeNumber(ExactPuzzle):
    """An expression of the given numbers, each used once, that equals the target."""

    numbers: tuple[int, ...]
    target: int

    def faults(self, answer: str) -> Iterator[PuzzleFault]:
        try:
            value, used = evaluate(answer)
        except ExpressionError as error:
            yield PuzzleFault(1.0, f"The answer must be one arithmetic expression: {error}.")
            return
        wrong = (Counter(used) - Counter(self.numbers)) + (Counter(self.numbers) - Counter(used))
        if wrong:
            penalty = min(1.0, wrong.total() / len(self.numbers)) / 2
            yield PuzzleFault(
                penalty, f"The expression uses {_listed(used)}; use each of {_listed(self.numbers)} once."
            )
        if value != self.target:
            yield PuzzleFault(0.5, f"The expression equals {value}, not {self.target}.")


@dataclass(frozen=True, slots=True)
class Factorization(ExactPuzzle):
    """Prime factors of a number, separated by multiplication signs, in any order."""

    number: int

    def faults(self, answer: str) -> Iterator[PuzzleFault]:
        parts = [part.strip() for part in answer.split(_TIMES)]
        if not all(_FACTOR.fullmatch(part) for part in parts):
            example = f" {_TIMES} ".join("223")
            yield PuzzleFault(1.0, f"The answer must be prime factors separated by {_TIMES}, such as {example}.")
            return
        factors = [int(part) for part in parts]
        others = [factor for factor in factors if not _is_prime(factor)]
        if others:
            yield PuzzleFault(len(others) / len(factors) / 2, f"Not prime: {_listed(others)}.")
        product = math.prod(factors)
        if product != self.number:
            yield PuzzleFault(0.5, f"The factors multiply to {product}, not {self.number}.")


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation in one unknown; the answer is the unknown's value, an integer."""

    unknown: str
    left: str
    right: str

    def faults(self, answer: str) -> Iterator[PuzzleFault]:
        if not _INTEGER.fullmatch(answer):
            yield PuzzleFault(1.0, f"The answer must be the value of {self.unknown} alone, as an integer.")
        elif self.difference(int(answer)) != 0:
            yield PuzzleFault(1.0, f"{self.unknown} = {answer} does not satisfy {self.left} = {self.right}.")

    def exactness(self) -> Exactness:
        """Exact for an equation with one solution: a linear one whose slope is not 0."""
        first, second, third = (self.difference(value) for value in (0, 1, 2))
        if third - second != second - first:
            return Exactness(exact=False, note="the equation is not linear and may have several solutions")
        if first == second:
            return Exactness(exact=False, note=f"the equation does not determine {self.unknown}")
        return Exactness(exact=True)

    def difference(self, value: int) -> Fraction:
        """Left side minus right side.

        Raises:
            ExpressionError: a side is not an expression in the unknown.
        """
        sides = [evaluate(side, {self.unknown: value})[0] for side in (self.left, self.right)]
        return sides[0] - sides[1]


@dataclass(frozen=True, slots=True)
class Cryptarithm(ExactPuzzle):
    """Digits for letters, all different, none leading with zero, so that the sum holds."""

    addends: tuple[str, ...]
    total: str

    def faults(self, answer: str) -> Iterator[PuzzleFault]:
        words = (*self.addends, self.total)
        letters = sorted(set("".join(words)))
        pairs = [_MAPPING.fullmatch(part) for part in answer.split(",")]
        digits = {pair[1]: int(pair[2]) for pair in pairs if pair is not None}
        if not all(pairs) or sorted(digits) != letters:
            yield PuzzleFault(1.0, f'The answer must give a digit for each of {_listed(letters)}, such as "A=1,B=2".')
            return
        if not all(0 <= digit <= 9 for digit in digits.values()) or len(set(digits.values())) < len(letters):
            yield PuzzleFault(0.25, "Each letter stands for a digit of its own, from 0 to 9.")
        leading = sorted({word[0] for word in words if digits[word[0]] == 0})
        if leading:
            yield PuzzleFault(0.25, f"{_listed(leading)} leads a number and cannot be zero.")
        addends_sum, total = sum(_number(word, digits) for word in self.addends), _number(self.total, digits)
        if addends_sum != total:
            yield PuzzleFault(0.5, f"The words add up to {addends_sum}, but {self.total} is {total}.")


def read_countdown(question: str) -> RulePuzzle | None:
    """The puzzle of a Countdown question; None for any other."""
    match = next((countdown_match for pattern in _COUNTDOWN if (countdown_match := pattern.match(question))), None)
    return None if match is None else MakeNumber(_integers(match["numbers"]), int(match["target"]))


def read_puzzle24(question: str) -> RulePuzzle | None:
    """The puzzle of a question about reaching 24; None for any other."""
    match = _PUZZLE24.match(question)
    return None if match is None else MakeNumber(_integers(match["numbers"]), 24)


def read_factorization(question: str) -> RulePuzzle | None:
    """The puzzle of a question about prime factors; None for any other."""
    match = _FACTORS.match(question)
    return None if match is None else Factorization(int(match[1]))


def read_equation(question: str) -> RulePuzzle | None:
    """The puzzle of a question about an equation with one unknown; None for any other."""
    match = _EQUATION.match(question)
    if match is None:
        return None
    unknown = match["found"] or match["solved"] or match["determined"]
    puzzle = Equation(unknown, match["left"].strip(), match["right"].strip())
    try:
        puzzle.difference(0)
    except ExpressionError:
        return None
    return puzzle


def read_cryptarithm(question: str) -> RulePuzzle | None:
    """The puzzle of a sum in letters; None for any other question."""
    match = _ADDENDS.match(question)
    return None if match is None else Cryptarithm(tuple(re.findall(r"[A-Z]+", match["addends"])), match["total"])


def _integers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"-?\d{1,12}", text)))


def _number(word: str, digits: dict[str, int]) -> int:
    number = 0
    for letter in word:
        number = 10 * number + digits[letter]
    return number


def _is_prime(number: int) -> bool:
    return number >= 2 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def _listed(items: Iterable[object]) -> str:
    return ", ".join(map(str, items)) or "nothing"
