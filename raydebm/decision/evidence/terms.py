"""The definition of a term of evidence, and the inputs that terms are measured from.

In:   a table of pools, and a reference with statistics of their authors.
Does not know: labels, weights, thresholds, Ray, HTTP; the list of terms (``built_in_terms``, ``measuring``).

A user module adds its own terms (docs/tutorials/a_term_of_evidence.md):

    add_term(Term(name="finished", words="texts that were not cut off", measure=finished))
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from raydebm.decision.evidence.reference import Reference
from raydebm.decision.groups import Floats, Ints, mean
from raydebm.decision.table import PoolTable
from raydebm.energy import total_energies
from raydebm.errors import ConfigError

MAX_Z = 5.0
"""Standardised energies and lengths are clipped to [-5, 5], to limit the effect of an outlier."""


def skill_of_rows(table: PoolTable, reference: Reference) -> Floats:
    """Skill of each row's author in its pool's kind of question, shape (R,)."""
    kinds, kind_of_pool = table.kind_of_pool
    known = [[reference.skill(name, kind) for kind in kinds] for name in table.authors]
    by_author = np.array(known).reshape(len(table.authors), len(kinds))
    skills: Floats = by_author[table.author_of_row, kind_of_pool[table.pool_of_row]]
    return skills


_PROOF_ORDER = {True: 0, None: 1, False: 2}


def representatives(table: PoolTable, reference: Reference) -> Ints:
    """Row of the candidate to return for each cluster, shape (C,). Every cluster must have a row.

    Proven candidates are preferred and refuted ones are last. Within each group the order is: author most skilled in
    the problem's kind of question, lowest E, lowest mu, lowest E_constraint, earliest pass, smallest id.
    """
    if not table.num_clusters:
        return np.empty(0, dtype=np.intp)
    rows = np.flatnonzero(table.cluster_of_row >= 0)
    given, cluster, penalty = [table.candidates[row] for row in rows], table.cluster_of_row[rows], table.penalty[rows]
    mu = np.where(np.isnan(table.mu), np.inf, table.mu)[rows]
    skill = skill_of_rows(table, reference)[rows]
    order = np.lexsort(
        (
            np.array([scored.candidate.candidate_id for scored in given]),
            np.array([scored.candidate.pass_index for scored in given]),
            penalty,
            mu,
            total_energies(mu, penalty, reference.lambda_),
            -skill,
            np.array([_PROOF_ORDER[scored.report.proof] for scored in given]),
            cluster,
        )
    )
    first = np.searchsorted(cluster[order], np.arange(table.num_clusters))
    chosen: Ints = rows[order[first]]
    return chosen


@dataclass(frozen=True, kw_only=True, eq=False)
class TermInputs:
    """Inputs of terms, each computed once: P pools, C clusters, R candidates in clusters.

    z is a candidate's energy standardised within its author, z_i = (mu_i - center_g) / scale_g.
    """

    table: PoolTable
    """Pools, of which only the rows in clusters (``PoolTable.answered``)."""
    reference: Reference
    """Statistics of the authors."""
    skills: Floats | None = None
    """Shape (R,). Log-odds of each row's author. Default: the skills of ``reference``."""
    difficulties: Floats | None = None
    """Shape (P,). Difficulty of each pool's kind of question. Default: the difficulties of ``reference``."""

    @cached_property
    def _authors(self) -> Floats:
        """Center, scale, length center and length scale of each row's author, shape (R, 4)."""
        known = [self.reference.author(name) for name in self.table.authors]
        figures = [(of.center, of.scale, of.length_center, of.length_scale) for of in known]
        by_row: Floats = np.array(figures).reshape(-1, 4)[self.table.author_of_row]
        return by_row

    @cached_property
    def skill(self) -> Floats:
        """Skill of the row's author in the pool's kind of question, shape (R,)."""
        return skill_of_rows(self.table, self.reference) if self.skills is None else self.skills

    @cached_property
    def difficulty(self) -> Floats:
        """Difficulty of each pool's kind of question, shape (P,)."""
        if self.difficulties is not None:
            return self.difficulties
        return np.array([self.reference.difficulty(kind) for kind in self.table.kinds], dtype=np.float64)

    @cached_property
    def voice(self) -> Floats:
        """1 / number of clustered candidates by the row's author in its pool, so that an author's rows sum to 1. Shape
        (R,)."""
        return 1 / self.table.votes_of_author

    @cached_property
    def scored(self) -> Ints:
        """Rows with an energy."""
        return np.flatnonzero(~np.isnan(self.table.mu))

    @cached_property
    def z(self) -> Floats:
        """z of the rows in ``scored``."""
        mu, (center, scale, _, _) = self.table.mu[self.scored], self._authors[self.scored].T
        return _cut((mu - center) / scale)

    @cached_property
    def level(self) -> Floats:
        """Mean of z, shape (P,). NaN where nothing was scored."""
        return mean(self.z, self.table.pool_of_row[self.scored], self.table.num_pools)

    @cached_property
    def length(self) -> Floats:
        """Log number of characters, standardised within authors, shape (R,)."""
        _, _, center, scale = self._authors.T
        return _cut((np.log1p(self.table.length) - center) / scale)

    @cached_property
    def pool_length(self) -> Floats:
        """Mean of ``length``, shape (P,)."""
        return mean(self.length, self.table.pool_of_row, self.table.num_pools)


def _cut(z: Floats) -> Floats:
    inside: Floats = np.clip(z, -MAX_Z, MAX_Z)
    return inside


About = Literal["answer", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A term of evidence, about each distinct answer of a pool or about "none of them is right"."""

    name: str
    words: str
    """Readable description of the term, such as ``share of candidates``."""
    measure: Callable[[TermInputs], Floats]
    """Function that returns bounded values, shape (C,) or, for a term about "none", (P,). NaN means "not measured" and
    is not treated as 0."""
    about: About = "answer"


ADDED_TERMS: dict[str, Term] = {}
"""Terms added by user modules, by name."""


def add_term(term: Term) -> None:
    """Add a term. The posterior then fits a weight for it, with a normal prior around 0.

    Raises:
        ConfigError: another term with this name exists.
    """
    if ADDED_TERMS.setdefault(term.name, term) is not term:
        raise ConfigError(f"there is a term of evidence {term.name!r} already; choose another name")
