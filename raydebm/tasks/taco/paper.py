"""Choice of problems of TACO-verified in place of the paper's 695.

The paper takes "695 fully-clean problems" of the set without the difficulty VERY_HARD, 601 to train and 94 to test, and
publishes neither their ids nor a definition of clean. Here a problem is clean if it has hidden tests and a recorded
solution, and its statement refers to no picture, which a text model cannot see. The first 695 by a hash of their ids
are taken, and the first 94 of these are for testing; the order of the data has no effect.
"""

import re
from collections.abc import Iterable

from raydebm.identity import content_id
from raydebm.records import Gold, Problem

NUM_PROBLEMS, NUM_TEST = 695, 94

_PICTURE = re.compile(r"<image>|\[image\]|<img\b|!\[[^\]]*\]\(", re.IGNORECASE)


def paper_problems(pairs: Iterable[tuple[Problem, Gold]], split: str) -> list[tuple[Problem, Gold]]:
    """Problems of a split, ``train`` or ``test``, from all of TACO-verified."""
    clean = [pair for pair in pairs if is_clean(*pair)]
    ranked = sorted(clean, key=lambda pair: content_id("taco", "paper", pair[0].problem_id))[:NUM_PROBLEMS]
    return ranked[:NUM_TEST] if split == "test" else ranked[NUM_TEST:]


def is_clean(problem: Problem, gold: Gold) -> bool:
    """True if a problem can be judged, is known to be solvable, and has no pictures."""
    return bool(gold.value.get("tests")) and bool(gold.value.get("solution")) and not _PICTURE.search(problem.prompt)
