"""Interface of baselines that score candidates, and the loop that scores the candidates of a run in pieces.

Each distinct text is scored once. The result has one row per candidate.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from raydebm.errors import PoolError, ScoringError, in_one_line, is_out_of_memory
from raydebm.records import Candidate, CandidateScore, Problem

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTexts:
    """A problem and the distinct texts of its candidates."""

    problem: Problem
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TextScore:
    """Score of one text, higher is better, or the reason for its absence."""

    value: float | None
    error: str | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    """Further scores by the same model, higher is better."""

    @classmethod
    def of(cls, value: float, parts: Mapping[str, float] | None = None) -> "TextScore":
        """Convert a model's numbers. NaN and infinities become errors."""
        wrong = next((number for number in (value, *(parts or {}).values()) if not math.isfinite(number)), None)
        if wrong is not None:
            return cls.failed(f"the model gave {wrong}; load it with dtype float32")
        return cls(value, parts=parts or {})

    @classmethod
    def failed(cls, error: str) -> "TextScore":
        """Result for a text that could not be scored."""
        return cls(None, error)


class CandidateScorer(Protocol):
    name: str
    """Name of the selector in reports."""

    def score(self, pools: Sequence[PoolTexts]) -> list[list[TextScore]]:
        """One score per text for each pool, in order. A text that cannot be scored has ``error``.

        Several pools are passed at a time, to keep endpoints busy and batches full.
        """
        ...


def flattened(pools: Sequence[PoolTexts]) -> list[tuple[str, str]]:
    """(problem's prompt, candidate's text) of every text, pool by pool."""
    return [(pool.problem.prompt, text) for pool in pools for text in pool.texts]


def regrouped(pools: Sequence[PoolTexts], items: Sequence[Item]) -> list[list[Item]]:
    """Results of ``flattened`` texts, grouped by pool."""
    groups, start = [], 0
    for pool in pools:
        groups.append(list(items[start : start + len(pool.texts)]))
        start += len(pool.texts)
    return groups


POOLS_PER_CALL = 16
NO_TEXT = "no text to score"
"""Beginning of the error of a candidate without text."""
REMEDY = "choose a smaller model or a device with more memory"


def score_candidates(
    scorer: CandidateScorer,
    problems: Mapping[str, Problem],
    candidates: Sequence[Candidate],
    *,
    pools_per_call: int = POOLS_PER_CALL,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[CandidateScore]:
    """Score candidates: one row per candidate, in order. Rows of candidates without text have ``error``.

    Args:
        problems: Problems by id.
        pools_per_call: Number of problems per call of the scorer.
        on_progress: Callback with (problems done, problems).

    Raises:
        PoolError: a candidate's problem is not among the problems.
        ScoringError: the numbers of texts and scores differ.
    """
    pools = _pools(problems, candidates)
    by_text: dict[tuple[str, str], TextScore] = {}
    done = 0
    for start in range(0, len(pools), pools_per_call):
        chunk = pools[start : start + pools_per_call]
        for pool, row in zip(chunk, scored_pools(scorer, chunk), strict=True):
            by_text |= {(pool.problem.problem_id, text): score for text, score in zip(pool.texts, row, strict=True)}
        done += len(chunk)
        if on_progress is not None:
            on_progress(done, len(pools))
    return [_row(scorer.name, candidate, by_text) for candidate in candidates]


def scored_pools(scorer: CandidateScorer, pools: Sequence[PoolTexts]) -> list[list[TextScore]]:
    """One score per text for each pool, in order.

    If memory runs out, each half of the pools is scored separately. The texts of a single pool that is too large get
    errors.

    Raises:
        ScoringError: the numbers of texts and scores differ.
    """
    try:
        scores = scorer.score(pools)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        if len(pools) == 1:
            return [[TextScore.failed(f"{in_one_line(str(error))}; {REMEDY}")] * len(pools[0].texts)]
    else:
        if [len(row) for row in scores] != [len(pool.texts) for pool in pools]:
            raise ScoringError(
                f"baseline {scorer.name!r} gave {[len(row) for row in scores]} scores for pools of "
                f"{[len(pool.texts) for pool in pools]} texts"
            )
        return scores
    # Outside the handler, because the error's traceback keeps the partial results in memory.
    middle = len(pools) // 2
    return scored_pools(scorer, pools[:middle]) + scored_pools(scorer, pools[middle:])


def _pools(problems: Mapping[str, Problem], candidates: Iterable[Candidate]) -> list[PoolTexts]:
    texts: dict[str, dict[str, None]] = {}
    for candidate in candidates:
        if candidate.problem_id not in problems:
            raise PoolError(
                f"candidate {candidate.candidate_id!r} answers problem {candidate.problem_id!r}, "
                "which is not among the problems given"
            )
        if candidate.text is not None:
            texts.setdefault(candidate.problem_id, {})[candidate.text] = None
    return [PoolTexts(problem=problems[name], texts=tuple(distinct)) for name, distinct in texts.items()]


def _row(name: str, candidate: Candidate, by_text: Mapping[tuple[str, str], TextScore]) -> CandidateScore:
    if candidate.text is None:
        return CandidateScore(
            candidate_id=candidate.candidate_id, name=name, score=None, error=f"{NO_TEXT}: {candidate.error}"
        )
    score = by_text[candidate.problem_id, candidate.text]
    return CandidateScore(
        candidate_id=candidate.candidate_id, name=name, score=score.value, error=score.error, parts=score.parts
    )
