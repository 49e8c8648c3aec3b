"""All pools as padded arrays, for computations without a loop over pools or candidates.

Shapes: P pools, N candidates of the largest pool, K adapters, C distinct answers of the pool with the most. A pool's
candidates are ordered by id, so the first of several equal ones is the selection of ``decision.rules.select``. Texts
are not stored, only lengths and token counts.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydebm.energy import total_energies
from raydebm.errors import PoolError
from raydebm.evaluation.pools.pool import Bools, EvaluatedPool, Floats, Ints, trained_labels
from raydebm.records import Problem, ScoredCandidate

TRUNCATED = ("length", "max_tokens")
"""Finish reasons of a truncated text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRequest:
    """A request without text."""

    pool: int
    generator: str
    cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stack:
    """First-pass candidates of every pool. Rows beyond a pool's size are not ``present``."""

    problems: tuple[Problem, ...]
    """Problems, one per pool."""
    present: Bools
    """(P, N)."""
    place: Ints
    """Shape (P, N). Index in the pool's shuffled order, from 0; -1 without a candidate."""
    members: Floats
    """Shape (P, N, K). NaN where nothing was scored."""
    penalty: Floats
    """Shape (P, N). +inf if the candidate did not parse."""
    correct: Floats
    """(P, N); 1, 0, or NaN for unlabeled."""
    violation: Floats
    """(P, N); NaN without one."""
    generator: Ints
    """Shape (P, N). Index into ``generators``; -1 without a candidate."""
    answer: Ints
    """Shape (P, N). Equal numbers within a pool are equal answers; -1 without an answer."""
    parsed: Bools
    """Shape (P, N). Whether an answer was found in the text."""
    length: Floats
    """Shape (P, N). Characters of the text; NaN without a candidate."""
    tokens: Floats
    """Shape (P, N). Completion tokens; NaN if unknown."""
    cost_usd: Floats
    """Shape (P, N). NaN if unknown."""
    cut_off: Floats
    """Shape (P, N). 1 if the text was truncated, else 0; NaN without a finish reason."""
    scores: Mapping[str, Floats]
    """Shape (P, N) by outside scorer, higher is better. NaN if absent."""
    dimensions: Mapping[str, Floats]
    """Shape (P, N) by part of the violation score, lower is better. NaN if unknown."""
    broken: Mapping[str, Floats]
    """Shape (P, N) by constraint. Sum of its penalties in the candidate; NaN if it is satisfied."""
    generators: tuple[str, ...]
    failed: tuple[FailedRequest, ...]
    """Requests without text, which are never selected."""
    greedy: "Stack | None" = None
    """The same pools' samples at temperature 0, a baseline. None in the greedy stack itself."""

    @classmethod
    def of(cls, pools: Sequence[EvaluatedPool]) -> "Stack":
        """Convert pools to arrays.

        Raises:
            PoolError: pools have different numbers of energies per candidate.
        """
        problems = tuple(pool.problem for pool in pools)
        failed = tuple(
            FailedRequest(pool=index, generator=scored.candidate.generator, cost_usd=scored.candidate.cost_usd)
            for index, pool in enumerate(pools)
            for scored in pool.failed
        )
        return cls(
            problems=problems,
            failed=failed,
            greedy=cls(problems=problems, failed=(), **_columns(pools, is_greedy=True)),
            **_columns(pools, is_greedy=False),
        )

    @property
    def num_members(self) -> int:
        """K, the number of adapters."""
        return int(self.members.shape[2])

    @property
    def sizes(self) -> Ints:
        """Candidates per pool, shape (P,)."""
        sizes: Ints = self.present.sum(axis=1)
        return sizes

    @property
    def labelled(self) -> Bools:
        """Whether the pool has at least one label, shape (P,)."""
        return np.array((~np.isnan(self.correct)).any(axis=1))

    @property
    def has_violations(self) -> bool:
        """Whether labels have violation scores. Selectors are then compared by the mean violation."""
        return not np.isnan(self.violation).all()

    def mu(self, adapters: Sequence[int] | None = None) -> Floats:
        """Mean energy over the adapters (default: all), shape (P, N). NaN where nothing was scored."""
        chosen = self.members if adapters is None else self.members[:, :, list(adapters)]
        if chosen.shape[2] == 0:
            return np.full(self.present.shape, math.nan)
        mean: Floats = chosen.mean(axis=2)
        return mean

    def sigma(self, adapters: Sequence[int] | None = None) -> Floats:
        """Population standard deviation over the adapters, shape (P, N). NaN where nothing was scored."""
        chosen = self.members if adapters is None else self.members[:, :, list(adapters)]
        if chosen.shape[2] == 0:
            return np.full(self.present.shape, math.nan)
        spread: Floats = chosen.std(axis=2)
        return spread

    def energy(self, mu: Floats, lambda_: float) -> Floats:
        """E = mu + lambda * E_constraint, shape (P, N). +inf if not parsed or not scored."""
        return np.where(np.isnan(mu), math.inf, total_energies(mu, self.penalty, lambda_))

    def lowest(self, energy: Floats, ties: Floats, *, within: Bools | None = None) -> Ints:
        """Column of the lowest energy, shape (P,). Ties go to the lower ``ties``, then the id. -1 if none is finite."""
        usable = self.present & np.isfinite(energy)
        if within is not None:
            usable &= within
        best = np.where(usable, energy, math.inf)
        first = usable & (best == best.min(axis=1, keepdims=True))
        second = np.where(first, ties, math.inf)
        chosen = (first & (second == second.min(axis=1, keepdims=True))).argmax(axis=1)
        return np.where(usable.any(axis=1), chosen, -1)

    def select(self, lambda_: float, adapters: Sequence[int] | None = None) -> Ints:
        """Column with the lowest energy under these adapters, shape (P,). -1 if nothing can be selected."""
        mu = self.mu(adapters)
        return self.lowest(self.energy(mu, lambda_), mu)

    def at(self, values: Floats, picked: Ints) -> Floats:
        """Value of each pool at its pick, shape (P,); NaN where there is no pick."""
        picked_values: Floats = np.where(picked >= 0, values[np.arange(len(picked)), picked], math.nan)
        return picked_values

    def correct_at(self, picked: Ints) -> Floats:
        """Correctness of each pick, shape (P,). Without a pick: 0 in a labelled pool. NaN if unlabelled."""
        correct: Floats = np.where(picked >= 0, self.at(self.correct, picked), self.correct_of_nothing())
        return correct

    def violation_at(self, picked: Ints) -> Floats:
        """Violation score of each pick, shape (P,). Without a pick: 1 in a pool with violation scores."""
        violation: Floats = np.where(picked >= 0, self.at(self.violation, picked), self.violation_of_nothing())
        return violation

    def correct_of_nothing(self) -> Floats:
        """Correctness of no answer, shape (P,): 0 in a labelled pool, else NaN."""
        return np.where(self.labelled, 0.0, math.nan)

    def violation_of_nothing(self) -> Floats:
        """Violation of no answer, shape (P,): 1 in a pool with violation scores, else NaN."""
        return np.where((~np.isnan(self.violation)).any(axis=1), 1.0, math.nan)

    def by_chance(self, within: Bools | None = None) -> Floats:
        """Share of correct among labelled candidates, shape (P,). NaN without any."""
        return self.mean_of(self.correct, within)

    def violation_by_chance(self, within: Bools | None = None) -> Floats:
        """Mean violation of all candidates, or of those in ``within``, shape (P,)."""
        return self.mean_of(self.violation, within)

    def mean_of(self, values: Floats, within: Bools | None = None) -> Floats:
        """Mean over the candidates with a value, shape (P,). NaN without any."""
        known = self.present & ~np.isnan(values)
        if within is not None:
            known &= within
        count = known.sum(axis=1)
        total = np.where(known, values, 0.0).sum(axis=1)
        mean: Floats = np.divide(total, count, where=count > 0, out=np.full(len(count), math.nan))
        return mean

    def oracle(self) -> Floats:
        """1 if some labelled candidate is correct, shape (P,). NaN without labels."""
        known = self.present & ~np.isnan(self.correct)
        best = np.where(known, self.correct, -math.inf).max(axis=1)
        return np.where(known.any(axis=1), best, math.nan)

    def by_answer(self, values: Floats | Bools) -> Floats:
        """Sum of a column over the candidates of each answer, shape (P, C)."""
        return sum_by_answer(self.answer, values)

    def of_answer(self, totals: NDArray[Any]) -> NDArray[Any]:
        """Entry of each candidate's answer in a (P, C) array, shape (P, N). Arbitrary for candidates without an
        answer."""
        return np.take_along_axis(totals, np.maximum(self.answer, 0), axis=1)

    def with_tolerance(self, tolerance: float) -> "Stack":
        """The same pools with a candidate correct if its violation score is at most ``tolerance``.

        For tasks with violation scores, where candidates without any violation may be too rare. Candidates without a
        violation score become unlabelled.
        """
        known = ~np.isnan(self.violation)
        return replace(self, correct=np.where(known, (self.violation <= tolerance).astype(np.float64), math.nan))

    def with_trained_labels(self) -> "Stack":
        """The same pools with the labels of ``pool.with_trained_labels``."""
        return replace(self, correct=trained_labels(self.violation, self.correct))

    def only(self, pools: Sequence[int] | Ints) -> "Stack":
        """Pools at these indices, in order, without failed requests and greedy samples."""
        return self._rearranged(lambda values: values[np.asarray(pools, dtype=np.intp)], pools)

    def narrowed(self, generator: int) -> "Stack":
        """The same pools with one generator's candidates only, without greedy samples."""
        within = self.generator == generator
        width = max(int(within.sum(axis=1).max(initial=0)), 1)
        # Stable sort: the remaining candidates keep the order of their ids.
        order = np.argsort(~within, axis=1, kind="stable")[:, :width]
        inside = np.take_along_axis(within, order, axis=1)

        def moved(values: NDArray[Any]) -> NDArray[Any]:
            index, mask = (order, inside) if values.ndim == 2 else (order[:, :, None], inside[:, :, None])
            return np.where(mask, np.take_along_axis(values, index, axis=1), empty_of(values))

        narrow = self._rearranged(moved, range(len(self.problems)))
        return replace(narrow, penalty=np.where(inside, narrow.penalty, math.inf))

    def _rearranged(self, moved: Any, pools: Sequence[int] | Ints) -> "Stack":
        changed: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                changed[field.name] = moved(value)
            elif isinstance(value, Mapping):
                changed[field.name] = {name: moved(column) for name, column in value.items()}
        problems = tuple(self.problems[index] for index in pools)
        return replace(self, problems=problems, failed=(), greedy=None, **changed)


def _columns(pools: Sequence[EvaluatedPool], *, is_greedy: bool) -> dict[str, Any]:
    """Fields of a stack for the pools' candidates, or for their greedy samples."""
    parts = [pool.greedy if is_greedy else pool.candidates for pool in pools]
    ids = [[each.candidate.candidate_id for each in part] for part in parts]
    orders = [np.array(sorted(range(len(own)), key=own.__getitem__), dtype=np.intp) for own in ids]
    items = [part[place] for part, order in zip(parts, orders, strict=True) for place in order]
    sizes = np.array([len(part) for part in parts], dtype=np.intp)
    row = np.repeat(np.arange(len(pools)), sizes)
    column = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    shape = (len(pools), max(int(sizes.max(initial=0)), 1))

    def padded(values: NDArray[Any], empty: Any = math.nan) -> NDArray[Any]:
        grid = np.full((*shape, *values.shape[1:]), empty, dtype=values.dtype)
        grid[row, column] = values
        return grid

    def joined(values_of: Callable[[EvaluatedPool], Floats]) -> NDArray[Any]:
        """Column over the pools' candidates, followed by their greedy samples."""
        own = (
            values_of(pool)[order + (len(pool.candidates) if is_greedy else 0)]
            for pool, order in zip(pools, orders, strict=True)
        )
        return padded(np.concatenate([values for values in own if len(values)] or [np.zeros(0)]))

    def by_name(maps_of: Callable[[EvaluatedPool], Mapping[str, Floats]]) -> dict[str, NDArray[Any]]:
        absent = {id(pool): np.full(len(pool.correct), math.nan) for pool in pools}

        def named(name: str) -> NDArray[Any]:
            return joined(lambda pool: maps_of(pool).get(name, absent[id(pool)]))

        return {name: named(name) for name in dict.fromkeys(name for pool in pools for name in maps_of(pool))}

    def read(values: Sequence[Any], kind: Any = np.float64, empty: Any = math.nan) -> NDArray[Any]:
        return padded(np.array(values, dtype=kind), empty)

    num_members = _num_members(pools)
    generators = sorted({each.candidate.generator for each in items})
    code_of = {name: index for index, name in enumerate(generators)}
    generator = read([code_of[each.candidate.generator] for each in items], np.intp, -1)
    reasons = [each.candidate.finish_reason for each in items]
    unscored = np.full((max((len(pool.correct) for pool in pools), default=0), num_members), math.nan)
    members = joined(lambda pool: pool.members if pool.members.shape[1] else unscored)
    return {
        "present": generator >= 0,
        "generator": generator,
        "generators": tuple(generators),
        "place": padded(np.concatenate([np.zeros(0, dtype=np.intp), *orders]), -1),
        "members": members if members.ndim == 3 else np.full((*shape, num_members), math.nan),
        "penalty": np.where(generator >= 0, joined(lambda pool: pool.penalty), math.inf),
        "correct": joined(lambda pool: pool.correct),
        "violation": joined(lambda pool: pool.violation),
        "answer": read(_numbered(parts, orders), np.intp, -1),
        "parsed": read([each.report.parsed for each in items], np.bool_, False),
        "length": read([len(each.candidate.text or "") for each in items]),
        "tokens": read([each.candidate.completion_tokens for each in items]),
        "cost_usd": read([each.candidate.cost_usd for each in items]),
        "cut_off": read([math.nan if reason is None else reason in TRUNCATED for reason in reasons]),
        "scores": by_name(lambda pool: pool.scores),
        "dimensions": by_name(lambda pool: pool.dimensions),
        "broken": {name: padded(values) for name, values in _broken(items).items()},
    }


def _num_members(pools: Sequence[EvaluatedPool]) -> int:
    counts = {pool.members.shape[1] for pool in pools} - {0}
    if len(counts) > 1:
        raise PoolError(
            f"candidates have {min(counts)} energies in one pool and {max(counts)} in another; the energies come "
            "from different checkpoints, score all candidates again"
        )
    return max(counts, default=0)


def _numbered(parts: Sequence[Sequence[ScoredCandidate]], orders: Sequence[Ints]) -> list[int]:
    """Answers of each pool numbered 0, 1, ... in order of first occurrence; -1 without an answer."""
    numbers = []
    for part, order in zip(parts, orders, strict=True):
        codes: dict[str, int] = {}
        keys = (part[place].report.vote_key for place in order)
        numbers += [-1 if key is None else codes.setdefault(key, len(codes)) for key in keys]
    return numbers


def _broken(items: Sequence[ScoredCandidate]) -> dict[str, Floats]:
    """Sum of each constraint's penalties, shape (R,) by constraint. NaN if it is satisfied."""
    columns: dict[str, Floats] = {}
    for row, scored in enumerate(items):
        for violation in scored.report.violations:
            column = columns.setdefault(violation.constraint, np.full(len(items), math.nan))
            column[row] = violation.penalty + np.nan_to_num(column[row])
    return dict(sorted(columns.items()))


def empty_of(values: NDArray[Any]) -> Any:
    """Padding value of a column: NaN, -1 or False."""
    return False if values.dtype == np.bool_ else math.nan if values.dtype.kind == "f" else -1


def sum_by_answer(answer: Ints, values: Floats | Bools) -> Floats:
    """Sum of (P, N) values over the candidates of each answer, shape (P, C). Answer -1 is ignored."""
    count = int(answer.max(initial=0)) + 1
    has_answer = answer >= 0
    places = (np.maximum(answer, 0) + count * np.arange(len(answer))[:, None])[has_answer]
    sums = np.bincount(places, weights=np.asarray(values, dtype=np.float64)[has_answer], minlength=count * len(answer))
    by_answer: Floats = sums.reshape(len(answer), count).astype(np.float64)
    return by_answer


def _ties(ordered: Floats) -> tuple[Ints, Ints]:
    """Start and end of each run of equal values in ascending rows, shape (P, N) each."""
    places = np.arange(ordered.shape[1])
    changes = ordered[:, 1:] != ordered[:, :-1]
    starts = np.zeros(ordered.shape, dtype=np.intp)
    starts[:, 1:] = np.where(changes, places[1:], 0)
    ends = np.full(ordered.shape, ordered.shape[1], dtype=np.intp)
    ends[:, :-1] = np.where(changes, places[1:], ordered.shape[1])
    return (
        np.maximum.accumulate(starts, axis=1),
        np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1],
    )


def pair_accuracies(energy: Floats, correct: Floats) -> Floats:
    """Share of (correct, incorrect) pairs in which the correct one has the lower energy, shape (P,). Ties count half.

    Args:
        energy: Energies, shape (P, N). Candidates with NaN are excluded.
        correct: 1, 0, or NaN for unlabelled, shape (P, N).
    """
    scored = ~np.isnan(energy)
    filled = np.where(scored, energy, math.inf)
    order = np.argsort(filled, axis=1)
    starts, ends = _ties(np.take_along_axis(filled, order, axis=1))
    good, bad = (np.take_along_axis(scored & (correct == label), order, axis=1) for label in (1, 0))
    below = np.zeros((len(bad), bad.shape[1] + 1), dtype=np.intp)
    np.cumsum(bad, axis=1, out=below[:, 1:])
    num_bad = below[:, -1:]
    lower = num_bad - np.take_along_axis(below, ends, axis=1)
    equal = np.take_along_axis(below, ends, axis=1) - np.take_along_axis(below, starts, axis=1)
    wins = np.where(good, lower + 0.5 * equal, 0.0).sum(axis=1)
    pairs = good.sum(axis=1) * num_bad[:, 0]
    share: Floats = np.divide(wins, pairs, where=pairs > 0, out=np.full(len(pairs), math.nan))
    return share
