"""Probability of each field of a structured answer, from the candidates' values of this field.

Every field (JSON path) is a small problem of its own. Its answers are the distinct values among the candidates; a
candidate without the field has the value "missing". Numbers within the task's tolerance count as one value
(``tasks.fields.merged``). The log-odds that a value v is right are

    w . phi(v) + bias + bias of the kind of field,   phi = (answers, votes, skill, energy, penalty)

===========  ==========================================================================================
``answers``  log-odds of p_v = sum of P(answer) over the answers with the value + P(none of them) s_v, with s_v =
             (n_v + 1/2) / (N + 1), where n_v of N candidates have the value. If no answer is right as a whole, the
             probability of a value is its share s_v of the candidates
``votes``    log-odds of s_v
``skill``    sum over authors of f logit q, with f the share of the author's candidates that have the value, and q the
             author's share of right fields of this kind
``energy``   mean standardised energy of the pool minus the lowest energy of a candidate with the value
``penalty``  minus the lowest penalty, over the answers with the value, of violations that name the field
===========  ==========================================================================================

Without a fitted model only ``answers`` counts, with weight 1: the marginal p_v, which needs no labels of fields.
``calibration.field_fit`` fits the weights of all terms.

Independent of: gold, files, Ray, HTTP.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from raydebm.decision.evidence.posterior import Belief
from raydebm.decision.evidence.terms import MAX_Z, Reference
from raydebm.decision.table import Floats, Ints, sigmoid
from raydebm.records import FieldBelief, ScoredCandidate
from raydebm.tasks.fields import MAX_FIELDS, kind_of_field, merged

TERMS = ("answers", "votes", "skill", "energy", "penalty")
MISSING = ""
"""Value of a field that a candidate lacks. No JSON value has an empty text."""
LOWEST = 1e-4
"""Marginals are clipped to [LOWEST, 1 - LOWEST] before their log-odds are taken."""


class FieldModel(BaseModel):
    """Fitted weights, and the authors' skills by kind of field."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weights: dict[str, float]
    """Weight by term."""
    bias: float = 0.0
    kinds: dict[str, float] = {}
    """Bias by kind of field (``kind_of_field``); 0 for the others."""
    skills: dict[str, dict[str, float]] = {}
    """Log-odds that a field is right, by author and kind of field. The empty name means all kinds together."""

    def skill(self, author: str, kind: str) -> float:
        """Log-odds that the author's field of this kind is right. Default: the value over all kinds, then 0."""
        known = self.skills.get(author, {})
        return known.get(kind, known.get("", 0.0))

    def log_odds(self, evidence: "FieldEvidence") -> Floats:
        """Log-odds of each value, shape (R,)."""
        kinds = [kind_of_field(path) for path in evidence.paths]
        skills = np.array([[self.skill(author, kind) for author in evidence.authors] for kind in kinds])
        biases = np.array([self.kinds.get(kind, 0.0) for kind in kinds]) + self.bias
        features = evidence.features(skills[evidence.path_of_row])
        scores: Floats = features @ [self.weights.get(term, 0.0) for term in TERMS] + biases[evidence.path_of_row]
        return scores


UNFITTED = FieldModel(weights={"answers": 1.0})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FieldEvidence:
    """Evidence for every value of every field of a pool: F fields, R values in all, A distinct answers, G authors."""

    paths: list[str]
    rows: Ints
    """Row of each field's value in each answer, shape (F, A)."""
    answer_of: Mapping[str, int]
    """Index of each answer by its canonical text."""
    path_of_row: Ints
    values: list[str]
    """JSON text of each value, R in total. One number represents all that are merged. ``MISSING`` without a value."""
    count: Ints
    """Number of candidates with the value, shape (R,)."""
    authors: list[str]
    author_share: Floats
    """Share of each author's candidates that have the value, shape (R, G)."""
    other_terms: Floats
    """All terms except ``skill``, in their order, shape (R, 4)."""

    def features(self, skills: Floats) -> Floats:
        """All terms, shape (R, 5), given the log-odds of each author at each row's kind of field, shape (R, G)."""
        return terms_of(self.other_terms, self.author_share, skills)


def terms_of(other_terms: Floats, author_share: Floats, skills: Floats) -> Floats:
    """Put the term ``skill`` in its place among the others. Arguments as in ``FieldEvidence``."""
    return np.insert(other_terms, TERMS.index("skill"), (author_share * skills).sum(axis=1), axis=1)


def field_evidence(
    pool: Sequence[ScoredCandidate], shares: Mapping[str, float] | None, reference: Reference
) -> FieldEvidence | None:
    """Measure the evidence of a pool. None without fields, or with more than ``MAX_FIELDS``.

    Args:
        pool: candidates of one problem.
        shares: probability of each answer by ``vote_key``. Default: the answer's share of the candidates.
        reference: statistics of the authors' energies.
    """
    usable = [each for each in pool if each.report.fields and each.report.vote_key is not None]
    if not usable:
        return None
    answer_of: dict[str, int] = {}
    answer = np.array([answer_of.setdefault(each.report.answer or "", len(answer_of)) for each in usable])
    first = np.unique(answer, return_index=True)[1]
    paths = list(dict.fromkeys(path for place in first for path in usable[place].report.fields))
    if len(paths) > MAX_FIELDS:
        return None
    num_answers, total = len(first), len(usable)
    count = np.bincount(answer, minlength=num_answers)
    tolerance = max(each.report.field_tolerance for each in usable)
    own = [usable[place].report.fields for place in first]
    rows, values, path_of_row = [], list[str](), list[int]()
    for place, path in enumerate(paths):
        start, codes = len(values), dict[str, int]()
        texts = [fields.get(path, MISSING) for fields in own]
        if tolerance:
            texts = merged(texts, count.tolist(), tolerance)
        for text in texts:
            if text not in codes:
                codes[text] = start + len(codes)
        rows.append([codes[text] for text in texts])
        values += codes
        path_of_row += [place] * len(codes)
    table = np.array(rows)
    flat, size, per_path = table.ravel(), len(values), len(paths)

    def summed(values: Floats | Ints) -> Floats:
        return np.bincount(flat, np.tile(values, per_path), size).astype(np.float64)

    votes = summed(count)
    if shares is None:
        mass = count / total
    else:
        keys, of_key = [usable[place].report.vote_key or "" for place in first], Counter[str]()
        for key, number in zip(keys, count.tolist(), strict=True):
            of_key[key] += number
        mass = np.array([shares.get(key, 0.0) for key in keys]) * count / [of_key[key] for key in keys]
    none = max(0.0, 1.0 - float(mass.sum()))
    marginal = np.clip(summed(mass) + none * (votes + 0.5) / (total + 1), LOWEST, 1 - LOWEST)
    names = [each.candidate.generator for each in usable]
    authors = sorted(set(names))
    written = np.array([[name == author for author in authors] for name in names], dtype=np.float64)
    by_answer = np.zeros((num_answers, len(authors)))
    np.add.at(by_answer, answer, written / written.sum(axis=0))
    other_terms = np.column_stack(
        [
            np.log(marginal) - np.log1p(-marginal),
            np.log((votes + 0.5) / (total - votes + 0.5)),
            _energies(usable, answer, table, size, reference),
            _penalties([usable[place] for place in first], paths, table, size),
        ]
    )
    return FieldEvidence(
        paths=paths,
        rows=table,
        answer_of=answer_of,
        path_of_row=np.array(path_of_row, dtype=np.intp),
        values=values,
        count=votes.astype(np.intp),
        authors=authors,
        author_share=np.column_stack([summed(column) for column in by_answer.T]),
        other_terms=other_terms,
    )


def _energies(usable: Sequence[ScoredCandidate], answer: Ints, rows: Ints, size: int, reference: Reference) -> Floats:
    """The term ``energy``, shape (R,); 0 if no candidate with the value was scored."""
    z = np.full(len(usable), np.nan)
    for place, each in enumerate(usable):
        if each.energies is not None:
            of = reference.author(each.candidate.generator)
            z[place] = min(max((each.energies.mu - of.center) / of.scale, -MAX_Z), MAX_Z)
    scored = ~np.isnan(z)
    if not scored.any():
        return np.zeros(size)
    best, lowest = np.full(rows.shape[1], np.inf), np.full(size, np.inf)
    np.minimum.at(best, answer[scored], z[scored])
    np.minimum.at(lowest, rows.ravel(), np.tile(best, len(rows)))
    return np.where(np.isinf(lowest), 0.0, z[scored].mean() - lowest)


def _penalties(answers: Sequence[ScoredCandidate], paths: Sequence[str], rows: Ints, size: int) -> Floats:
    """The term ``penalty``, shape (R,)."""
    broken, named = np.zeros(rows.shape), dict[str, list[int]]()
    for place, each in enumerate(answers):
        for violation in each.report.violations:
            if violation.path:
                if violation.path not in named:
                    named[violation.path] = [row for row, path in enumerate(paths) if _names(violation.path, path)]
                broken[named[violation.path], place] += violation.weight * violation.penalty
    if not named:
        return np.zeros(size)
    lowest = np.full(size, np.inf)
    np.minimum.at(lowest, rows.ravel(), broken.ravel())
    return -lowest


def _names(named: str, path: str) -> bool:
    """Whether the field at ``path`` is the one at ``named`` or a part of it."""
    return path == named or path.startswith((f"{named}.", f"{named}["))


def field_beliefs(
    pool: Sequence[ScoredCandidate],
    best: ScoredCandidate | None,
    *,
    beliefs: Sequence[Belief],
    reference: Reference,
    model: FieldModel = UNFITTED,
) -> tuple[FieldBelief, ...]:
    """Belief about the selected answer's value of each field in the pool. Empty without fields, or with too many.

    Args:
        pool: candidates of one problem.
        best: selected candidate.
        beliefs: beliefs about the pool's answers. Empty without a posterior.
        reference: statistics of the authors' energies.
        model: fitted weights.
    """
    if best is None or not best.report.fields:
        return ()
    shares = {belief.cluster.key: belief.probability for belief in beliefs} or None
    evidence = field_evidence(pool, shares, reference)
    if evidence is None:
        return ()
    probability = sigmoid(model.log_odds(evidence))
    selected = evidence.rows[:, evidence.answer_of[best.report.answer or ""]]
    confidence = np.ones(len(selected)) if best.report.proof else probability[selected]
    others = probability.copy()
    others[selected] = -1.0
    order = np.lexsort((-others, evidence.path_of_row))
    runner_up = order[np.searchsorted(evidence.path_of_row[order], np.arange(len(evidence.paths)))]
    return tuple(
        FieldBelief(
            path=path,
            **_value(best.report.fields.get(path, MISSING)),
            confidence=sure,
            num_candidates=int(evidence.count[row]),
            runner_up=_value(evidence.values[other])["value"] if other != row else None,
            runner_up_confidence=min(float(probability[other]), 1 - sure) if other != row else None,
        )
        for path, row, sure, other in zip(
            evidence.paths, selected.tolist(), confidence.tolist(), runner_up.tolist(), strict=True
        )
    )


def _value(text: str) -> dict[str, Any]:
    return {"value": None, "is_missing": True} if text == MISSING else {"value": json.loads(text)}


def to_review(fields: Sequence[FieldBelief], tau_field: float) -> tuple[str, ...]:
    """Paths of the fields whose confidence is below ``tau_field``."""
    return tuple(field.path for field in fields if field.confidence < tau_field)
