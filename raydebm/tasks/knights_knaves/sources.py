"""Sources of puzzles: the generator, files in the published format, or the published data set."""

import re
from collections.abc import Iterator
from pathlib import Path

from raydebm.errors import TaskDataError
from raydebm.tasks.knights_knaves.logic import MAX_PEOPLE
from raydebm.tasks.knights_knaves.puzzles import make_puzzle
from raydebm.tasks.sources import Row, check_split, file_rows, hub_name, hub_rows, look_for

DEFAULT_SIZES = range(2, 9)
DEFAULT_COUNTS = {"train": 6200, "test": 700}
"""The paper's sizes, the default limit."""

HUB_DATASET = "K-and-K/knights-and-knaves"

_GENERATE = re.compile(r"generate:(\d+)(?:-(\d+))?")


def rows(split: str, source: str | None, *, limit: int | None, seed: int) -> Iterator[tuple[str, Row]]:
    """Pairs of (location of the row, row in the published format), in the source's order.

    Raises:
        TaskDataError: an unknown source or split, or a missing or unreadable file.
    """
    check_split(split, tuple(DEFAULT_COUNTS), task="knights_knaves")
    if source is None:
        return _generated(split, DEFAULT_SIZES, limit=limit, seed=seed)
    if source.startswith("generate"):
        return _generated(split, _sizes(source), limit=limit, seed=seed)
    dataset = hub_name(source, HUB_DATASET)
    if dataset is not None:
        # The published sets have one configuration per split, with one part per size ("2ppl" ...).
        return hub_rows(dataset, split, otherwise="use a .jsonl file or generate:2-8")
    return _files(split, Path(source))


def _sizes(source: str) -> range:
    match = _GENERATE.fullmatch(source)
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 2 <= least <= most <= MAX_PEOPLE:
        raise TaskDataError(f"unknown source {source!r}; sizes are written generate:2-4, from 2 to {MAX_PEOPLE} people")
    return range(least, most + 1)


def _generated(split: str, sizes: range, *, limit: int | None, seed: int) -> Iterator[tuple[str, Row]]:
    """Puzzles of alternating sizes. Repeated quizzes are skipped, so ids are unique."""
    count = DEFAULT_COUNTS[split] if limit is None else limit
    seen: set[str] = set()
    index = 0
    while len(seen) < count:
        puzzle = make_puzzle(sizes[index % len(sizes)], part=split, seed=seed, index=index)
        index += 1
        if puzzle.quiz not in seen:
            seen.add(puzzle.quiz)
            yield f"generated puzzle {index}", {"quiz": puzzle.quiz, "solution": list(puzzle.solution)}


def _files(split: str, path: Path) -> Iterator[tuple[str, Row]]:
    if path.is_dir():
        look_for(path, [f"*{split}*.jsonl*"])
        files = sorted(file for file in path.glob("*.jsonl*") if split in file.name and "pool" not in file.name)
        if not files:
            raise TaskDataError(f"no file in {path} has {split!r} in its name and ends in .jsonl or .jsonl.gz")
    elif path.is_file():
        files = [path]
    else:
        raise TaskDataError(f"no such file or folder: {path}; or write generate:2-8 or hub:{HUB_DATASET}")
    for file in files:
        yield from file_rows(file)
