"""Measure every term of evidence about each distinct answer of a pool and about "none of them is right".

Terms are the built-in ones (``built_in_terms``), those added by user modules, and two for each score. Scores are
those of baselines that are evidence, and the generators' log-probabilities (``own_logprob``, ``own_worst_logprob``):

===================== ================================================================================
``score:<name>``      mean over an answer's candidates minus the mean over the pool, of the score standardised
                      within authors
``pool_score:<name>`` mean over the pool of the standardised score, for "none of them"
===================== ================================================================================

A term that was not measured is NaN, not 0 (see ``posterior.filled``).
"""

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np

from raydebm.decision.evidence.built_in_terms import BUILT_IN
from raydebm.decision.evidence.terms import ADDED_TERMS, MAX_Z, About, Reference, Term, TermInputs
from raydebm.decision.table import Floats, PoolTable, mean
from raydebm.errors import ConfigError
from raydebm.extensions import load_extensions

SCORE, POOL_SCORE = "score:", "pool_score:"
"""Name prefixes of the terms of scores, about answers and about "none of them"."""


def term_table() -> dict[str, Term]:
    """All terms by name, in column order: built-in ones first.

    Raises:
        ConfigError: a user module cannot be imported, or adds a term with the name of a built-in one.
    """
    load_extensions()
    table = {term.name: term for term in BUILT_IN}
    taken = sorted(table.keys() & ADDED_TERMS)
    if taken:
        raise ConfigError(f"term of evidence {taken[0]!r} is built in; choose another name")
    return table | ADDED_TERMS


def terms_about(about: About) -> tuple[Term, ...]:
    """Terms about answers, or terms about "none of them"."""
    return tuple(term for term in term_table().values() if term.about == about)


def term_in_words(name: str) -> str:
    """Readable name of a term about answers."""
    return f"score by {name.removeprefix(SCORE)}" if name.startswith(SCORE) else term_table()[name].words


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """Values of the terms, for every cluster and every pool."""

    names: tuple[str, ...]
    """Terms about answers. Terms of scores are last."""
    context_names: tuple[str, ...]
    """Terms about "none of them". Terms of scores are last."""
    terms: Floats
    """Shape (C, len(names)), the clusters of all pools concatenated. NaN where not measured."""
    context: Floats
    """Shape (P, len(context_names)); NaN where not measured."""

    def term(self, name: str) -> Floats:
        """Values of one term about answers, shape (C,). NaN if it was not measured."""
        return self.terms[:, self.names.index(name)] if name in self.names else np.full(len(self.terms), math.nan)

    def context_term(self, name: str) -> Floats:
        """Values of one term about "none of them", shape (P,). NaN if it was not measured."""
        names = self.context_names
        return self.context[:, names.index(name)] if name in names else np.full(len(self.context), math.nan)


def evidence_of(
    table: PoolTable,
    reference: Reference,
    *,
    skills: Floats | None = None,
    difficulties: Floats | None = None,
    names: Container[str] | None = None,
) -> Evidence:
    """Measure the terms of every cluster.

    Args:
        table: pools.
        reference: statistics of the authors.
        skills: log-odds that each clustered row's author is right, shape (R,). Default: the skills of ``reference``.
        difficulties: difficulty of each pool's kind, shape (P,). Default: the difficulties of ``reference``.
        names: names of the terms to measure. Default: all. Terms of scores are always measured if candidates have
            them.

    Raises:
        ConfigError: a user's term does not return one number per answer, or per pool.
    """
    table = table.answered
    inputs = TermInputs(table=table, reference=reference, skills=skills, difficulties=difficulties)
    answers, none = (
        [term for term in terms_about(about) if names is None or term.name in names] for about in ("answer", "none")
    )
    relative, levels = _score_terms(table, reference)
    num_clusters, num_pools = table.num_clusters, table.num_pools
    return Evidence(
        names=(*(term.name for term in answers), *(SCORE + name for name in table.evidence_scores)),
        context_names=(*(term.name for term in none), *(POOL_SCORE + name for name in table.evidence_scores)),
        terms=_columns([*(_measured(term, inputs, num_clusters) for term in answers), *relative], num_clusters),
        context=_columns([*(_measured(term, inputs, num_pools) for term in none), *levels], num_pools),
    )


def _columns(columns: Sequence[Floats], count: int) -> Floats:
    """Array of shape (count, len(columns)), even without columns."""
    return np.column_stack([np.empty((count, 0)), *columns])


def _measured(term: Term, inputs: TermInputs, count: int) -> Floats:
    column = term.measure(inputs)
    if column.shape != (count,):
        per = "answer" if term.about == "answer" else "pool"
        raise ConfigError(
            f"the term of evidence {term.name!r} must be one number per {per}, shape ({count},); got {column.shape}"
        )
    return column


def _score_terms(table: PoolTable, reference: Reference) -> tuple[list[Floats], list[Floats]]:
    relative, levels = [], []
    for name, values in table.evidence_scores.items():
        norms = np.array([reference.score_norm(author, name) for author in table.authors]).reshape(-1, 2)
        center, scale = norms[table.author_of_row].T
        known = ~np.isnan(values)
        z = np.clip((values - center) / scale, -MAX_Z, MAX_Z)[known]
        level = mean(z, table.pool_of_row[known], len(table.clusters))
        own = mean(z, table.cluster_of_row[known], table.num_clusters)
        relative.append(own - level[table.pool_of_cluster])
        levels.append(level)
    return relative, levels
