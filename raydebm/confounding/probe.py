"""Linear probes: can the generator, or the length, be read from the features that the energy heads see?

In:   features of candidates, and per candidate its generator, problem, label and length.
Out:  cross-validated accuracies, with the accuracies of guessing beside them.
Does not know: how features are made.

Folds are by problem: no problem is in a probe's training and test part. That a probe succeeds shows that the
information is there, not that the energy uses it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raydebm.errors import PoolError
from raydebm.evaluation.intervals import Bootstrap, Estimate, Floats
from raydebm.identity import seed_for

FOLDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRow:
    """One probe."""

    target: str
    accuracy: Estimate
    """Mean over candidates of being classified right, out of fold; interval by bootstrap over problems."""
    majority: float
    """Accuracy of always naming the most frequent class."""
    num_classes: int
    num_candidates: int
    lift: Estimate
    """``accuracy`` minus ``majority``: what the features tell."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbeData:
    """R candidates."""

    features: NDArray[np.float32]
    """Shape (R, F)."""
    problem_ids: Sequence[str]
    generators: Sequence[str]
    correct: Floats
    """1, 0, or NaN for unlabeled."""
    num_chars: Floats
    """Length of the candidate's text."""

    def __post_init__(self) -> None:
        sizes = {
            len(self.features), len(self.problem_ids), len(self.generators), len(self.correct), len(self.num_chars)
        }  # fmt: skip
        if len(sizes) != 1:
            raise PoolError(f"a probe needs one value of each kind per candidate, got {sorted(sizes)} of them")


def probes(data: ProbeData, *, num_bootstrap: int = 2000, seed: int = 0, folds: int = FOLDS) -> tuple[ProbeRow, ...]:
    """Generator; generator among correct candidates only; longer than the problem's median; and correctness.

    The second is the one to look at: among correct answers, nothing about quality gives the generator away. A target
    with one class only, or with fewer problems than folds, is left out.
    """
    ids = np.array(data.problem_ids)
    right = data.correct == 1
    known = ~np.isnan(data.correct)
    everyone = np.ones(len(ids), dtype=bool)
    writers = np.array(data.generators)
    longer, has_median = _longer_than_median(data)
    targets = (
        ("generator", writers, everyone),
        ("generator (correct answers)", writers, right),
        ("longer than the problem's median answer", longer, has_median),
        ("correct", np.where(right, "correct", "incorrect"), known),
    )
    found = []
    for name, labels, rows in targets:
        row = _probe(name, data.features[rows], labels[rows], ids[rows], num_bootstrap, seed, folds)
        if row is not None:
            found.append(row)
    return tuple(found)


def _longer_than_median(data: ProbeData) -> tuple["np.ndarray[tuple[int], np.dtype[np.str_]]", NDArray[np.bool_]]:
    """Whether a candidate is longer than its problem's median; candidates at the median are left out."""
    ids = np.array(data.problem_ids)
    medians = np.zeros(len(ids))
    for problem_id in np.unique(ids):
        rows = ids == problem_id
        medians[rows] = np.median(data.num_chars[rows])
    return np.where(data.num_chars > medians, "longer", "shorter"), data.num_chars != medians


def _probe(
    target: str,
    features: NDArray[np.float32],
    labels: "np.ndarray[tuple[int], np.dtype[np.str_]]",
    problem_ids: "np.ndarray[tuple[int], np.dtype[np.str_]]",
    num_bootstrap: int,
    seed: int,
    folds: int,
) -> ProbeRow | None:
    # Imported here because it takes seconds, which commands that evaluate nothing need not wait for.
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    problems, of_row = np.unique(problem_ids, return_inverse=True)
    classes, counts = np.unique(labels, return_counts=True)
    if len(classes) < 2 or len(problems) < folds:
        return None
    hit = np.zeros(len(labels))
    splits = GroupKFold(n_splits=folds, shuffle=True, random_state=seed_for(seed, "probe", target))
    for train, test in splits.split(features, labels, groups=of_row):
        if len(np.unique(labels[train])) < 2:
            hit[test] = labels[test] == labels[train][0]
            continue
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300, C=0.1))
        model.fit(features[train], labels[train])
        hit[test] = model.predict(features[test]) == labels[test]
    sums = np.bincount(of_row, weights=hit, minlength=len(problems)).astype(np.float64)
    sizes = np.bincount(of_row, minlength=len(problems)).astype(float)
    bootstrap = Bootstrap.of(len(problems), num_bootstrap=num_bootstrap, seed=seed)
    majority = float(counts.max() / len(labels))
    most = np.bincount(of_row, weights=labels == classes[counts.argmax()], minlength=len(problems)).astype(float)
    return ProbeRow(
        target=target,
        accuracy=bootstrap.ratio(sums, sizes),
        majority=majority,
        num_classes=len(classes),
        num_candidates=len(labels),
        lift=bootstrap.ratio(sums - most, sizes),
    )
