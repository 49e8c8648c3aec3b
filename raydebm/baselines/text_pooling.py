"""Pools to one list of texts and back. No torch."""

from collections.abc import Sequence
from typing import TypeVar

from raydebm.baselines.protocol import PoolTexts

Item = TypeVar("Item")


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
