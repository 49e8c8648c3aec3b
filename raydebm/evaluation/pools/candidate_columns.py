"""Candidates as flat columns, one row each, and the padded arrays that are made of them (``stack.Stack``)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydebm.errors import PoolError
from raydebm.evaluation.pools.pool import Bools, EvaluatedPool, Floats, Ints
from raydebm.records import ScoredCandidate

TRUNCATED = ("length", "max_tokens")
"""Finish reasons of a text that was cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRequest:
    """A request of the pool that brought no text."""

    pool: int
    generator: str
    cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CandidateColumns:
    """R candidates, sorted by pool and then by id; the fields mean what ``Stack``'s of the same names do."""

    pool: Ints
    """(R,), not descending."""
    place: Ints
    members: Floats
    """(R, K)"""
    penalty: Floats
    correct: Floats
    violation: Floats
    generator: Ints
    """(R,): index into ``generators``."""
    answer: Ints
    """(R,): equal within a pool where answers are; -1 without one. Any other numbers."""
    parsed: Bools
    length: Floats
    tokens: Floats
    cost_usd: Floats
    cut_off: Floats
    scores: Mapping[str, Floats] = field(default_factory=dict)
    dimensions: Mapping[str, Floats] = field(default_factory=dict)
    broken: Mapping[str, Floats] = field(default_factory=dict)
    generators: tuple[str, ...]


def laid_out(columns: CandidateColumns, *, num_pools: int) -> dict[str, Any]:
    """The fields of a ``Stack`` of these candidates, but for problems and failed requests."""
    sizes = np.bincount(columns.pool, minlength=num_pools)
    shape = (num_pools, max(int(sizes.max(initial=0)), 1))
    column = np.arange(len(columns.pool)) - (np.cumsum(sizes) - sizes)[columns.pool]

    def padded(values: NDArray[Any], empty: Any = math.nan) -> NDArray[Any]:
        grid = np.full((*shape, *values.shape[1:]), empty, dtype=values.dtype)
        grid[columns.pool, column] = values
        return grid

    generator = padded(columns.generator, -1)
    floats = ("members", "correct", "violation", "length", "tokens", "cost_usd", "cut_off")
    return {
        "present": generator >= 0,
        "generator": generator,
        "generators": columns.generators,
        "place": padded(columns.place, -1),
        "penalty": padded(columns.penalty, math.inf),
        "answer": padded(numbered(columns.pool, columns.answer), -1),
        "parsed": padded(columns.parsed, False),
        **{name: padded(getattr(columns, name)) for name in floats},
        **{
            name: {key: padded(values) for key, values in getattr(columns, name).items()}
            for name in ("scores", "dimensions", "broken")
        },
    }


def numbered(pool: Ints, answer: Ints) -> Ints:
    """Answers numbered 0, 1, ... within each pool in the order in which they occur; -1 stays.

    Args:
        pool: (R,), not descending.
        answer: (R,), equal within a pool where answers are; -1 without one.
    """
    numbers = np.full(len(answer), -1, dtype=np.intp)
    given = np.flatnonzero(answer >= 0)
    if not len(given):
        return numbers
    keys = pool[given] * (int(answer.max()) + 1) + answer[given]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    # A pool's rows stand together, so its distinct answers do in the order of their first rows too.
    order = np.argsort(first)
    owner = pool[given][first[order]]
    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order)) - np.searchsorted(owner, owner)
    numbers[given] = rank[inverse]
    return numbers


def columns_of(pools: Sequence[EvaluatedPool], *, is_greedy: bool) -> CandidateColumns:
    """Columns of the pools' candidates, or of their greedy samples.

    Raises:
        PoolError: pools have different numbers of energies per candidate.
    """
    num_members = _num_members(pools)
    parts = [pool.greedy if is_greedy else pool.candidates for pool in pools]
    ids = [[scored.candidate.candidate_id for scored in part] for part in parts]
    orders = [sorted(range(len(own)), key=own.__getitem__) for own in ids]
    items = [part[row] for part, order in zip(parts, orders, strict=True) for row in order]
    rows = [np.array(order, dtype=np.intp) for order in orders]
    starts = [len(pool.candidates) if is_greedy else 0 for pool in pools]
    before = np.cumsum([0, *(len(pool.correct) for pool in pools)])[:-1]
    places = np.concatenate(
        [np.zeros(0, dtype=np.intp), *(r + s + b for r, s, b in zip(rows, starts, before, strict=True))]
    )

    def joined(values: Iterable[Floats]) -> Floats:
        """One array per pool, of its candidates and then of its greedy samples."""
        of_pools: Floats = np.concatenate([np.zeros(0), *values])
        return of_pools.take(places)

    def by_name(maps: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
        names = dict.fromkeys(name for values in maps for name in values)
        return {
            name: joined(
                values[name] if name in values else np.full(len(pool.correct), math.nan)
                for pool, values in zip(pools, maps, strict=True)
            )
            for name in names
        }

    generators = sorted({scored_candidate.candidate.generator for scored_candidate in items})
    code_of = {name: index for index, name in enumerate(generators)}
    members = [pool.members[r + s] for pool, r, s in zip(pools, rows, starts, strict=True) if pool.members.shape[1]]
    scored = np.repeat([bool(pool.members.shape[1]) for pool in pools], [len(order) for order in rows]).astype(bool)
    energies = np.full((len(items), num_members), math.nan)
    energies[scored] = np.concatenate([np.zeros((0, num_members)), *members])
    return CandidateColumns(
        pool=np.repeat(np.arange(len(pools)), [len(order) for order in rows]),
        place=np.concatenate([np.zeros(0, dtype=np.intp), *rows]),
        members=energies,
        penalty=joined(pool.penalty for pool in pools),
        correct=joined(pool.correct for pool in pools),
        violation=joined(pool.violation for pool in pools),
        generator=np.array(
            [code_of[scored_candidate.candidate.generator] for scored_candidate in items], dtype=np.intp
        ),
        generators=tuple(generators),
        scores=by_name([pool.scores for pool in pools]),
        dimensions=by_name([pool.dimensions for pool in pools]),
        broken=_broken(items),
        **_details(items),
    )


def _num_members(pools: Sequence[EvaluatedPool]) -> int:
    counts = {pool.members.shape[1] for pool in pools} - {0}
    if len(counts) > 1:
        raise PoolError(
            f"candidates have {min(counts)} energies in one pool and {max(counts)} in another; the energies come "
            "from different checkpoints, score all candidates again"
        )
    return max(counts, default=0)


def _details(items: Sequence[ScoredCandidate]) -> dict[str, Any]:
    """What is read from the candidates themselves and from their reports, by column."""
    codes: dict[str, int] = {}
    keys = [scored.report.vote_key for scored in items]
    reasons = [scored.candidate.finish_reason for scored in items]
    return {
        "answer": np.array([-1 if key is None else codes.setdefault(key, len(codes)) for key in keys], dtype=np.intp),
        "parsed": np.array([scored.report.parsed for scored in items], dtype=np.bool_),
        "length": np.array([len(scored.candidate.text or "") for scored in items], dtype=np.float64),
        "tokens": np.array([scored.candidate.completion_tokens for scored in items], dtype=np.float64),
        "cost_usd": np.array([scored.candidate.cost_usd for scored in items], dtype=np.float64),
        "cut_off": np.array([math.nan if reason is None else reason in TRUNCATED for reason in reasons], np.float64),
    }


def _broken(items: Sequence[ScoredCandidate]) -> dict[str, Floats]:
    rows: dict[str, list[int]] = {}
    penalties: dict[str, list[float]] = {}
    for row, scored in enumerate(items):
        for violation in scored.report.violations:
            rows.setdefault(violation.constraint, []).append(row)
            penalties.setdefault(violation.constraint, []).append(violation.penalty)
    columns = {name: np.full(len(items), math.nan) for name in sorted(rows)}
    for name, column in columns.items():
        column[rows[name]] = 0.0
        np.add.at(column, rows[name], penalties[name])
    return columns
