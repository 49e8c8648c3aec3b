"""Probabilities of the fields of structured answers on the test problems, as the loop gave them.

Intervals are over problems, because fields of one problem are not independent.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from raydebm.decision.groups import Floats
from raydebm.evaluation.certainty.reliability import Reliability, reliability
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.records import FieldBelief, Label, Outcome
from raydebm.tasks.fields import kind_of_field

MOST_KINDS = 20
"""Kinds of field with a row of their own, the most frequent first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRow:
    """Fields of one kind."""

    kind: str
    """Path with ``[*]`` for list items."""
    num: int
    right: Estimate
    """Share of right fields."""
    confidence: float
    """Mean confidence."""
    shown: Estimate
    """Share of the fields that are not flagged for review."""
    error: Estimate
    """Share of wrong ones among these."""
    auroc: Estimate
    """AUROC of the confidence for right fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldStudy:
    """Fields of the selected answers: all together first, then by kind."""

    tau_field: float
    rows: tuple[FieldRow, ...]
    reliability: Reliability


def field_study(
    outcomes: Sequence[Outcome],
    labels: Mapping[str, Label],
    *,
    problem_ids: Sequence[str],
    tau_field: float,
    bootstrap: Bootstrap,
) -> FieldStudy | None:
    """Compare confidences with verdicts, or return None if no selected answer has labelled fields.

    Args:
        outcomes: one per problem.
        labels: labels by candidate id.
        problem_ids: problems in the bootstrap's order.
    """
    places = {name: place for place, name in enumerate(problem_ids)}
    judged = [
        (places[outcome.problem.problem_id], each, verdict)
        for outcome in outcomes
        if outcome.problem.problem_id in places
        for each, verdict in _verdicts(outcome, labels)
    ]
    if not judged:
        return None
    owner = np.array([place for place, _, _ in judged])
    confidence = np.array([each.confidence for _, each, _ in judged])
    right = np.array([verdict for _, _, verdict in judged], dtype=np.float64)
    kinds = np.array([kind_of_field(each.path) for _, each, _ in judged])
    # A field has its problem's weight in every resample.
    by_field = Bootstrap(counts=bootstrap.counts[:, owner])

    def share(values: Floats, among: Floats) -> Estimate:
        top, bottom = (np.bincount(owner, part, len(problem_ids)) for part in (values * among, among))
        return bootstrap.ratio(top.astype(np.float64), bottom.astype(np.float64))

    def row(kind: str, inside: Floats) -> FieldRow:
        shown = (confidence >= tau_field).astype(np.float64)
        return FieldRow(
            kind=kind,
            num=int(inside.sum()),
            right=share(right, inside),
            confidence=float(confidence[inside > 0].mean()),
            shown=share(shown, inside),
            error=share(1 - right, inside * shown),
            auroc=by_field.auroc(np.where(inside > 0, confidence, np.nan), right),
        )

    every = np.ones(len(judged))
    most = [kind for kind, _ in Counter(kinds.tolist()).most_common(MOST_KINDS)]
    stated = reliability("field confidence", "the field is right", confidence, right, by_field)
    return FieldStudy(
        tau_field=tau_field,
        rows=(row("all", every), *(row(kind, (kinds == kind).astype(np.float64)) for kind in most if len(most) > 1)),
        reliability=replace(stated, brier=share((confidence - right) ** 2, every)),
    )


def _verdicts(outcome: Outcome, labels: Mapping[str, Label]) -> list[tuple[FieldBelief, bool]]:
    """Fields of the selected answer with their verdicts; empty if it is not labelled."""
    label = None if outcome.best is None else labels.get(outcome.best.candidate.candidate_id)
    if label is None or not label.fields:
        return []
    # A field that neither the answer nor the reference answer has is rightly missing.
    return [(each, label.fields.get(each.path, True)) for each in outcome.fields]
