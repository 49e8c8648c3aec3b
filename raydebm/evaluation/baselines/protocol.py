"""Interface of all scorers of candidates."""

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
    """Third-party scorer of candidates."""

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
