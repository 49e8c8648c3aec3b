"""Pools written by hand, and pools that hypothesis makes up."""

import math
import random
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from raydebm.decision.table import PoolTable
from raydebm.records import Problem
from raydebm.testing import scored_candidate


def scored(name, answer, members=None, *, author="g", penalty=0.0, proof=None, pass_index=1, text="x", error=None):
    """A candidate with its answer (None: no answer was found) and one energy per member (None: no energies)."""
    return scored_candidate(
        answer,
        candidate_id=name,
        energies=members,
        generator=author,
        penalty=penalty,
        proof=proof,
        pass_index=pass_index,
        text=text,
        check_error=error,
    )


@dataclass(frozen=True)
class Labelled:
    """A problem's candidates with the worth of each, and the verdicts on its fields."""

    problem_id: str
    candidates: list
    worth: np.ndarray
    fields: tuple = ()
    prompt: str = ""


def labelled(problem_id, candidates, right=(), *, worth=None):
    """The pool with label 1 for answers in ``right`` and 0 for others, or with the given worth by candidate."""
    values = [float(candidate.report.vote_key in right) for candidate in candidates] if worth is None else worth
    return Labelled(problem_id, candidates, np.array(values, dtype=np.float64))


def table_of(pools, *, outcome="correct"):
    """The table of labelled pools, in which candidates of different problems may have the same id."""
    table = PoolTable.of(
        [pool.candidates for pool in pools],
        problems=[Problem(task="t", problem_id=p.problem_id, prompt=p.prompt or p.problem_id) for p in pools],
    )
    places = list(zip(table.pool_of_row, table.place_of_row, strict=True))
    worth = np.array([pools[pool].worth[place] for pool, place in places])
    verdicts = [pools[pool].fields[place] if pools[pool].fields else None for pool, place in places]
    table = replace(table, field_verdicts=np.array(verdicts, dtype=object))
    return replace(table, correct=worth) if outcome == "correct" else replace(table, violation=1 - worth)


def synthetic_problems(count, *, seed, size=6, members=2, skills=(0.8, 0.5, 0.35)):
    """Problems whose authors are right with the chances ``skills``, and whose right answers have the lower energies."""
    rng = random.Random(seed)
    problems = []
    for index in range(count):
        pool = []
        hard = rng.gauss(0, 1)
        for place in range(size):
            author = place % len(skills)
            is_right = rng.random() < 1 / (1 + math.exp(hard)) * 0.4 + skills[author] * 0.6
            answer = "right" if is_right else f"wrong{rng.randrange(3)}"
            level = -0.5 if is_right else 0.5
            energies = [rng.gauss(level, 1) for _ in range(members)]
            pool.append(scored(f"{index}-{place}", answer, energies, author=f"g{author}"))
        problems.append(labelled(f"q{index}", pool, {"right"}))
    return problems


ENERGY = st.floats(-20, 20, allow_nan=False)


@st.composite
def pools(draw, *, proofs=(None,), max_size=9, members=None, penalties=(0.0, 1.0)):
    """A pool of one task: every candidate with the same number of members, or without energies."""
    count = draw(st.integers(1, 3)) if members is None else members
    made = []
    proof_of = {}
    for index in range(draw(st.integers(1, max_size))):
        answer = draw(st.sampled_from(["A", "B", "C", None]))
        energies = draw(st.one_of(st.none(), st.tuples(*[ENERGY] * count)))
        if answer is not None and answer not in proof_of:
            proof_of[answer] = draw(st.sampled_from(proofs))
        made.append(
            scored(
                f"c{index}",
                answer,
                energies,
                author=draw(st.sampled_from(["g1", "g2", "g3"])),
                penalty=draw(st.sampled_from(penalties)),
                proof=proof_of.get(answer),
            )
        )
    return made
