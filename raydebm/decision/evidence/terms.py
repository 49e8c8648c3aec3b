"""The definition of a term of evidence, and the inputs that terms are measured from.

In:   a table of pools, and a reference with statistics of their authors.
Independent of: labels, weights, thresholds, Ray, HTTP; the list of terms (``built_in_terms``, ``measuring``).

A user module adds its own terms (docs/tutorials/a_term_of_evidence.md):

    add_term(Term(name="finished", words="texts that were not cut off", measure=finished))
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from raydebm.decision.table import Floats, Ints, PoolTable, mean
from raydebm.errors import ConfigError
from raydebm.records import total_energies

# ---- statistics of authors ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Statistics of one author (a generator) on labelled problems."""

    skill: float
    """Log-odds that one of the author's candidates is right."""
    kinds: Mapping[str, float] = field(default_factory=dict)
    """``skill`` on problems of one kind, for each kind with labelled candidates of the author. Empty without kinds."""
    center: float
    """Mean of mu over the author's candidates."""
    scale: float
    """Standard deviation of mu over the author's candidates, > 0."""
    length_center: float = 0.0
    """Mean of log(1 + characters) over the author's candidates."""
    length_scale: float = 1.0
    """Standard deviation of log(1 + characters) over the author's candidates, > 0."""
    scores: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Mean and standard deviation (> 0) of the score over the author's candidates, by baseline."""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Author":
        """Inverse of ``asdict``."""
        scores = {name: (center, scale) for name, (center, scale) in value.get("scores", {}).items()}
        return cls(**{**value, "scores": scores})


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Statistics of one kind of question on labelled problems."""

    level: float
    """Log-odds that a candidate of any author is right, minus those on all problems."""
    difficulty: float
    """Log-odds that no candidate of a problem is right, minus those on all problems."""
    num_problems: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Statistics of all authors."""

    authors: Mapping[str, Author]
    default: Author
    """Statistics for authors without labelled candidates: all authors together."""
    lambda_: float
    """Weight of E_constraint in E."""
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    """Statistics by kind. Empty if problems have no kinds."""

    def author(self, name: str) -> Author:
        """Statistics of one author; ``default`` if the author has no labelled candidates."""
        return self.authors.get(name, self.default)

    def skill(self, author: str, kind: str) -> float:
        """Skill of an author in a kind of question, minus the level of the kind. The skill over all kinds if the kind
        is unknown or has no labelled candidate of the author."""
        known = self.author(author)
        if kind not in self.kinds or kind not in known.kinds:
            return known.skill
        return known.kinds[kind] - self.kinds[kind].level

    def difficulty(self, kind: str) -> float:
        """Difficulty of a kind of question; 0 if the kind is unknown."""
        return self.kinds[kind].difficulty if kind in self.kinds else 0.0

    def score_norm(self, author: str, score: str) -> tuple[float, float]:
        """(mean, standard deviation) of a baseline's score over an author's candidates."""
        return self.author(author).scores.get(score) or self.default.scores.get(score, (0.0, 1.0))

    def to_json(self) -> dict[str, Any]:
        """The reference as JSON values, as in a policy file, with authors ordered by name."""
        authors = {name: _json(author) for name, author in sorted(self.authors.items())}
        return {**_json(self), "authors": authors, "default": _json(self.default)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Reference":
        """Inverse of ``to_json``."""
        return cls(
            authors={name: Author.from_json(author) for name, author in value["authors"].items()},
            default=Author.from_json(value["default"]),
            lambda_=value["lambda_"],
            kinds={name: Kind(**kind) for name, kind in value.get("kinds", {}).items()},
        )


def _json(part: Author | Reference) -> dict[str, Any]:
    """JSON values, without the key ``kinds`` if it is empty."""
    return {name: value for name, value in asdict(part).items() if value or name != "kinds"}


PLAIN = Reference(authors={}, default=Author(skill=0.0, center=0.0, scale=1.0), lambda_=1.0)
"""Reference without author statistics: energies are not standardised, and all authors count equally."""


# ---- terms ----------------------------------------------------------------------------------------------------------

MAX_Z = 5.0
"""Standardised energies, lengths and scores are clipped to [-5, 5], to limit the effect of an outlier."""


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
    """Pools, with only the rows that are in clusters (``PoolTable.answered``)."""
    reference: Reference
    """Statistics of the authors."""
    skills: Floats | None = None
    """Shape (R,). Log-odds that each row's author is right. Default: the skills of ``reference``."""
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
        """1 / number of the author's clustered candidates in the row's pool, shape (R,)."""
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
        """Mean of z over each pool, shape (P,). NaN where nothing was scored."""
        return mean(self.z, self.table.pool_of_row[self.scored], self.table.num_pools)

    @cached_property
    def length(self) -> Floats:
        """Log number of characters, standardised within authors, shape (R,)."""
        _, _, center, scale = self._authors.T
        return _cut((np.log1p(self.table.length) - center) / scale)

    @cached_property
    def pool_length(self) -> Floats:
        """Mean of ``length`` over each pool, shape (P,)."""
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
    """Function that returns bounded values of shape (C,) or, for a term about "none", (P,). NaN means "not measured",
    which differs from 0."""
    about: About = "answer"


ADDED_TERMS: dict[str, Term] = {}
"""Terms added by user modules, by name."""


def add_term(term: Term) -> None:
    """Add a term. The posterior then fits a weight for it, with a normal prior around 0.

    Raises:
        ConfigError: another added term has this name. ``measuring.term_table`` refuses a built-in name.
    """
    if ADDED_TERMS.setdefault(term.name, term) is not term:
        raise ConfigError(f"term of evidence {term.name!r} already exists; choose another name")
