"""What every scorer of candidates does, whatever stands behind it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from raydebm.records import Problem

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTexts:
    """A problem and the distinct texts of its candidates."""

    problem: Problem
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TextScore:
    """One text's score, higher is better, or why it has none."""

    value: float | None
    error: str | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    """Further scores by the same model, higher is better."""

    @classmethod
    def of(cls, value: float, parts: Mapping[str, float] | None = None) -> "TextScore":
        """Numbers of a model; NaN and infinities are no scores."""
        wrong = next((number for number in (value, *(parts or {}).values()) if not math.isfinite(number)), None)
        if wrong is not None:
            return cls.failed(f"the model gave {wrong}; load it with dtype float32")
        return cls(value, parts=parts or {})

    @classmethod
    def failed(cls, error: str) -> "TextScore":
        """A text that could not be scored, and why."""
        return cls(None, error)


class CandidateScorer(Protocol):
    """A third-party scorer of candidates."""

    name: str
    """The selector's name in reports."""

    def score(self, pools: Sequence[PoolTexts]) -> list[list[TextScore]]:
        """For each pool one score per text, in order. A text that cannot be scored is a score with ``error``.

        Several pools at a time, so that endpoints are kept busy and batches full.
        """
        ...


def flattened(pools: Sequence[PoolTexts]) -> list[tuple[str, str]]:
    """(problem's prompt, candidate's text) of every text, pool by pool."""
    return [(pool.problem.prompt, text) for pool in pools for text in pool.texts]


def regrouped(pools: Sequence[PoolTexts], items: Sequence[Item]) -> list[list[Item]]:
    """Results of ``flattened`` texts, as one list per pool."""
    groups, start = [], 0
    for pool in pools:
        groups.append(list(items[start : start + len(pool.texts)]))
        start += len(pool.texts)
    return groups
