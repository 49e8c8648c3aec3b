"""The optional package reasoning-gym: its questions and its verifiers."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from raydebm.tasks.libraries import library

SCORE_CPU_S, ENTRIES_CPU_S = 10.0, 120.0
"""Limits of one score, and of generating one data set."""


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of a data set, in order."""

    category: str
    questions: tuple[tuple[str, str], ...]
    """(question, answer)."""


@functools.cache
def is_installed() -> bool:
    """True if the package reasoning-gym can be imported."""
    return find_spec("reasoning_gym") is not None


def entries_of(dataset: str, config: Mapping[str, Any]) -> Entries:
    """Generate a data set.

    Raises:
        LibraryError: there is no such data set, it refuses the config, or it takes too long.
    """
    reply = library("reasoning-gym").ask({"entries": dataset, "config": dict(config)}, cpu_s=ENTRIES_CPU_S)
    return Entries(reply["category"], tuple((question, answer) for question, answer in reply["entries"]))


def score_of(dataset: str, config: Mapping[str, Any], index: int, *, question: str, answer: str) -> float:
    """Score in [0, 1] of the data set's verifier for an answer to one of its entries.

    Raises:
        LibraryError: it took too long or failed, or this version has another question at the index.
    """
    request = {"score": dataset, "config": dict(config), "index": index, "question": question, "answer": answer}
    return float(library("reasoning-gym").ask(request, cpu_s=SCORE_CPU_S)["score"])
