"""Puzzles answered by a list of moves: jugs, tower_of_hanoi, quantum_lock."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from raydebm.constraints import Exactness
from raydebm.tasks.reasoning_gym.rules.puzzle import ExactPuzzle, PuzzleFault, RulePuzzle

MAX_STATES = 50_000
"""States in a search for the shortest solution; counted, not timed."""

_JUGS = re.compile(
    r"You are a police officer\..*?hold this many litres of water: (?P<jugs>[A-Z]:\d{1,6}(?:, [A-Z]:\d{1,6})*)\n"
    r"And your target is: (?P<target>\d{1,6}) litres\.",
    re.DOTALL,
)
_JUG_MOVE = re.compile(r"\s*(?:(fill|empty)\s+([A-Z])|pour\s+([A-Z])->([A-Z]))\s*")
_HANOI = re.compile(
    r"Solve the Tower of Hanoi problem with (?P<disks>\d{1,2}) disks and (?P<pegs>[3-9]) pegs\.\n"
    r"Move all disks from Peg (?P<start>\d) to Peg (?P<target>\d) following the rules:"
)
_DISK_MOVE = re.compile(r"Move disk (\d{1,3}) from Peg (\d{1,3}) to Peg (\d{1,3})")
_LOCK = re.compile(
    r"In front of you are some buttons, a light, and a number\..*?"
    r"Start: (?P<start>-?\d{1,6}) \((?P<light>red|green)\)\n"
    r"Target: (?P<target>-?\d{1,6})\nButtons:\n(?P<buttons>.*)\Z",
    re.DOTALL,
)
_BUTTON = re.compile(r"([A-Z]): (Add|Subtract|Multiply) (\d{1,6}) \(when (red|green|any)\)")
_MAX_DISKS = 20
_MAX_NUMBER = 10**9


@dataclass(frozen=True, slots=True)
class Jugs(ExactPuzzle):
    """Jugs of known sizes, all empty; after the moves one of them holds the target."""

    sizes: Mapping[str, int]
    target: int

    def faults(self, answer: str) -> Iterator[PuzzleFault]:
        moves = _strings(answer)
        if moves is None:
            yield PuzzleFault(1.0, 'The answer must be a JSON list of moves, such as ["fill A", "pour A->B"].')
            return
        held = dict.fromkeys(self.sizes, 0)
        for number, move in enumerate(moves, start=1):
            match = _JUG_MOVE.fullmatch(move)
            if match is None or not {jug for jug in match.groups()[1:] if jug} <= set(held):
                yield PuzzleFault(
                    1.0, f"Move {number}, {move[:40]!r}, is none of fill, empty and pour with these jugs."
                )
                return
            self._do(match, held)
        if self.target not in held.values():
            amounts = ", ".join(f"{jug}: {amount}" for jug, amount in held.items())
            yield PuzzleFault(0.5, f"After the moves no jug holds {self.target} litres ({amounts}).")

    def _do(self, move: re.Match[str], held: dict[str, int]) -> None:
        what, jug, source, sink = move.groups()
        if what is not None:
            held[jug] = self.sizes[jug] if what == "fill" else 0
            return
        amount = min(held[source], self.sizes[sink] - held[sink])
        held[source] -= amount
        held[sink] += amount


@dataclass(frozen=True, slots=True)
class Hanoi(ExactPuzzle):
    """All disks from one peg to another, one at a time, never a larger one on a smaller, in the fewest moves.

    The question does not ask for the fewest moves, but the data set counts a longer solution as wrong. The fewest is
    what the Frame-Stewart algorithm needs, which is optimal for three and four pegs.
    """

    disks: int
    pegs: int
    start: int
    target: int

    def faults(self, answer: str) -> Iterator[PuzzleFault]:
        pegs: dict[int, list[int]] = {peg: [] for peg in range(1, self.pegs + 1)}
        pegs[self.start] = list(range(self.disks, 0, -1))
        lines = [line.strip() for line in answer.splitlines() if line.strip()]
        for number, line in enumerate(lines, start=1):
            fault = _move_disk(pegs, line)
            if fault is not None:
                yield PuzzleFault(1.0, f"Move {number}, {line[:60]!r}: {fault}.")
                return
        if len(pegs[self.target]) != self.disks:
            missing = self.disks - len(pegs[self.target])
            yield PuzzleFault(
                0.5 + 0.5 * missing / self.disks, f"{missing} disks are not on Peg {self.target} at the end."
            )
            return
        fewest = fewest_moves(self.disks, self.pegs)
        if len(lines) > fewest:
            yield PuzzleFault(0.25, f"The solution takes {len(lines)} moves; {fewest} are enough.")


@dataclass(frozen=True)
class Lock:
    """Buttons that change a number and toggle a light; the shortest sequence that reaches the target.

    A button works only under its light. Pressing it under the other light does nothing, not even toggle, as the data
    set has it.
    """

    start: int
    light: str
    target: int
    buttons: Mapping[str, tuple[str, int, str]]
    """By name: operation, operand, light."""

    def faults(self, answer: str) -> Iterator[PuzzleFault]:
        pressed = re.findall(r"[A-Z]", answer.upper())
        if not pressed or not set(pressed) <= set(self.buttons):
            yield PuzzleFault(
                1.0, f"The answer must be a sequence of the buttons {', '.join(self.buttons)}, joined by →."
            )
            return
        state = (self.start, self.light)
        for button in pressed:
            state = self._after(state, button)
            if abs(state[0]) > _MAX_NUMBER:
                break
        if state[0] != self.target:
            yield PuzzleFault(1.0, f"The sequence ends at {_short(state[0])}, not at {self.target}.")
        elif self._fewest is not None and len(pressed) > self._fewest:
            yield PuzzleFault(0.5, f"The sequence has {len(pressed)} presses; {self._fewest} are enough.")

    def exactness(self) -> Exactness:
        if self._fewest is None:
            return Exactness(exact=False, note=f"no shortest sequence was found among {MAX_STATES} states")
        return Exactness(exact=True)

    @cached_property
    def _fewest(self) -> int | None:
        """Breadth first."""
        seen = reached = {(self.start, self.light)}
        presses = 0
        while reached and len(seen) <= MAX_STATES:
            if any(number == self.target for number, _ in reached):
                return presses
            reached = {self._after(state, button) for state in reached for button in self.buttons} - seen
            reached = {state for state in reached if abs(state[0]) <= _MAX_NUMBER}
            seen = seen | reached
            presses += 1
        return None

    def _after(self, state: tuple[int, str], button: str) -> tuple[int, str]:
        number, light = state
        operation, operand, needed = self.buttons[button]
        if needed not in (light, "any"):
            return state
        changed = {"Add": number + operand, "Subtract": number - operand, "Multiply": number * operand}[operation]
        return changed, "green" if light == "red" else "red"


@cache
def fewest_moves(disks: int, pegs: int) -> int:
    """Moves of the Frame-Stewart algorithm (Stewart 1941; optimal for 4 pegs: Bousch 2014)."""
    if disks <= 1:
        return disks
    if pegs == 3:
        return int(2**disks - 1)
    return min(2 * fewest_moves(top, pegs) + fewest_moves(disks - top, pegs - 1) for top in range(1, disks))


def read_jugs(question: str) -> RulePuzzle | None:
    """The puzzle of a question about jugs; None for any other."""
    match = _JUGS.match(question)
    if match is None:
        return None
    sizes = {name: int(size) for name, size in re.findall(r"([A-Z]):(\d+)", match["jugs"])}
    return Jugs(sizes, int(match["target"]))


def read_hanoi(question: str) -> RulePuzzle | None:
    """The puzzle of a question about the Tower of Hanoi; None for any other."""
    match = _HANOI.match(question)
    if match is None:
        return None
    disks, pegs, start, target = (int(match[name]) for name in ("disks", "pegs", "start", "target"))
    in_range = 1 <= disks <= _MAX_DISKS and 1 <= start <= pegs and 1 <= target <= pegs and start != target
    return Hanoi(disks, pegs, start, target) if in_range else None


def read_lock(question: str) -> RulePuzzle | None:
    """The puzzle of a question about a lock with buttons; None for any other."""
    match = _LOCK.match(question)
    if match is None:
        return None
    buttons = [_BUTTON.fullmatch(line.strip()) for line in match["buttons"].strip().split("\n")]
    named = {button[1]: (button[2], int(button[3]), button[4]) for button in buttons if button is not None}
    if len(named) != len(buttons):
        return None
    return Lock(int(match["start"]), match["light"], int(match["target"]), named)


def _move_disk(pegs: dict[int, list[int]], line: str) -> str | None:
    """Make the move; what is wrong with it, or None."""
    match = _DISK_MOVE.search(line)
    if match is None:
        return "each line must read 'Move disk X from Peg Y to Peg Z'"
    disk, source, sink = map(int, match.groups())
    if source not in pegs or sink not in pegs:
        return f"there are pegs 1 to {len(pegs)}"
    if pegs[source][-1:] != [disk]:
        return f"disk {disk} is not on top of Peg {source}"
    if pegs[sink] and pegs[sink][-1] < disk:
        return f"disk {disk} is larger than the top of Peg {sink}"
    pegs[sink].append(pegs[source].pop())
    return None


def _strings(answer: str) -> list[str] | None:
    try:
        parsed = json.loads(answer)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, list) and all(isinstance(move, str) for move in parsed) else None


def _short(number: int) -> str:
    return str(number) if abs(number) <= _MAX_NUMBER else "a number beyond any use"
