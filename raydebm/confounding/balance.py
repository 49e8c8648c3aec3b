"""Texts balanced over generators and labels: cells of one size, weights, and pairs."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from raydebm.errors import PoolError
from raydebm.identity import seed_for


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairText:
    """One labelled candidate."""

    candidate_id: str
    problem_id: str
    prompt: str
    text: str
    generator: str
    correct: bool


def balanced_cells(
    texts: Sequence[RepairText], *, cap: int, min_cell: int, seed: int
) -> tuple[list[RepairText], dict[str, tuple[int, int]]]:
    """At most ``cap`` texts a (generator, label) cell, and the generators that were left out.

    Equal texts of a problem and generator count once. The order of ``texts`` changes nothing.
    """
    cells: dict[tuple[str, bool], list[RepairText]] = defaultdict(list)
    distinct = {(example.problem_id, example.generator, example.text, example.correct): example for example in texts}
    for _, example in sorted(distinct.items()):
        cells[example.generator, example.correct].append(example)
    generators = sorted({generator for generator, _ in cells})
    sizes = {name: (len(cells[name, True]), len(cells[name, False])) for name in generators}
    left_out = {name: size for name, size in sizes.items() if min(size) < min_cell}
    examples: list[RepairText] = []
    for name in generators:
        for label in (True, False):
            cell = [] if name in left_out else cells[name, label]
            examples += Random(seed_for(seed, "cell", name, label)).sample(cell, min(cap, len(cell)))
    return examples, left_out


def cell_weights(texts: Sequence[RepairText]) -> list[float]:
    """Weights that sum to 1 and give every (generator, label) cell the same sum."""
    sizes = Counter((example.generator, example.correct) for example in texts)
    return [1.0 / (len(sizes) * sizes[example.generator, example.correct]) for example in texts]


def balanced_pairs(texts: Sequence[RepairText]) -> tuple[list[tuple[int, int]], list[float]]:
    """Pairs (correct, incorrect) of a problem, as positions, with weights that sum to 1.

    For two generators a and b, "a beats b" weighs as much in all as "b beats a"; where only one of the two occurs it is
    dropped. So energies that depend on the generator alone gain nothing.
    """
    by_problem: dict[str, list[int]] = defaultdict(list)
    for position, example in enumerate(texts):
        by_problem[example.problem_id].append(position)
    groups: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for rows in by_problem.values():
        for chosen in rows:
            for rejected in rows:
                if texts[chosen].correct and not texts[rejected].correct:
                    groups[texts[chosen].generator, texts[rejected].generator].append((chosen, rejected))
    both = {key: group for key, group in groups.items() if key[::-1] in groups}
    # Frequent generator pairs tell more, so each two weigh by the rarer of their two directions.
    sizes = {key: min(len(both[key]), len(both[key[::-1]])) for key in both}
    total = sum(sizes.values())
    pairs = [pair for group in both.values() for pair in group]
    weights = [sizes[key] / (total * len(group)) for key, group in both.items() for _ in group]
    return pairs, weights


def check_split(train: Sequence[RepairText], validation: Sequence[RepairText]) -> None:
    """Raise PoolError where training and validation texts share a problem."""
    shared = {example.problem_id for example in train} & {example.problem_id for example in validation}
    if shared:
        raise PoolError(f"{len(shared)} problems are in repair's train and validation part, such as {min(shared)!r}")


def _cell_size(texts: Sequence[RepairText], generator: str) -> tuple[int, int]:
    labels = Counter(example.correct for example in texts if example.generator == generator)
    return labels[True], labels[False]


def _sizes_text(sizes: Mapping[str, tuple[int, int]]) -> str:
    return ", ".join(f"{name} ({right} correct, {wrong} incorrect)" for name, (right, wrong) in sizes.items()) or "none"
