"""Linear probes for the generator, or the length, in the features of the energy heads.

In:   features of candidates, and the generator, problem, label and length of each.
Out:  cross-validated accuracies, with the accuracies of guessing.
Does not know: the source of the features.

Folds are by problem: no problem is in both the training and the test part of a probe. A successful probe shows that the
features contain the information, not that the energy uses it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raydebm.errors import PoolError
from raydebm.evaluation.stats.effects import standardized_logistic
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate, Floats
from raydebm.identity import seed_for

FOLDS = 5
Names = np.ndarray[tuple[int], np.dtype[np.str_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRow:
    """One probe."""

    target: str
    accuracy: Estimate
    """Share of candidates classified correctly out of fold, with a bootstrap interval over problems."""
    majority: float
    """Accuracy of guessing without the features: the most frequent class. For generators, the most frequent one among
    those with a row of the same problem, because the features also identify the problem."""
    num_classes: int
    num_candidates: int
    lift: Estimate
    """``accuracy`` minus ``majority``: the information in the features."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbeData:
    """Data of R candidates."""

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


def probes(data: ProbeData, *, num_bootstrap: int = 2000, seed: int = 0) -> tuple[ProbeRow, ...]:
    """Probes for the generator, the generator among correct candidates, a length above the problem's median, and
    correctness.

    The second one is the most informative: among a problem's correct answers, quality does not reveal the generator. A
    target with one class, or with fewer problems than folds, is omitted.
    """
    ids, writers = np.array(data.problem_ids), np.array(data.generators)
    right = data.correct == 1
    longer, has_median = _longer_than_median(data)
    everyone, known = np.ones(len(ids), dtype=bool), ~np.isnan(data.correct)
    targets = (
        ("generator", writers, everyone, _commonest_of_the_problem),
        ("generator (correct answers)", writers, right, _commonest_of_the_problem),
        ("longer than the problem's median answer", longer, has_median, _commonest),
        ("correct", np.where(right, "correct", "incorrect"), known, _commonest),
    )
    probed = [
        _probe(
            _Target(name, data.features[rows], labels[rows], ids[rows], guess),
            num_bootstrap=num_bootstrap, seed=seed,
        )
        for name, labels, rows, guess in targets
    ]  # fmt: skip
    return tuple(row for row in probed if row is not None)


def _longer_than_median(data: ProbeData) -> tuple["np.ndarray[tuple[int], np.dtype[np.str_]]", NDArray[np.bool_]]:
    """Whether a candidate is longer than its problem's median. Candidates at the median are excluded."""
    _, place = np.unique(np.array(data.problem_ids), return_inverse=True)
    by_problem = np.split(np.argsort(place, kind="stable"), np.cumsum(np.bincount(place))[:-1])
    medians = np.zeros(len(place))
    for rows in by_problem:
        medians[rows] = np.median(data.num_chars[rows])
    return np.where(data.num_chars > medians, "longer", "shorter"), data.num_chars != medians


def _commonest(labels: Names, problem_ids: Names) -> Names:
    classes, counts = np.unique(labels, return_counts=True)
    return np.full(len(labels), classes[counts.argmax()])


def _commonest_of_the_problem(labels: Names, problem_ids: Names) -> Names:
    """For every row, the overall most frequent class among those of its problem."""
    classes, place, counts = np.unique(labels, return_inverse=True, return_counts=True)
    _, problem = np.unique(problem_ids, return_inverse=True)
    has = np.zeros((problem.max(initial=-1) + 1, len(classes)), dtype=bool)
    has[problem, place] = True
    guesses: Names = classes[np.where(has, counts, -1).argmax(axis=1)][problem]
    return guesses


@dataclass(frozen=True, slots=True)
class _Target:
    """Target of one probe: rows of features, and the class of each."""

    name: str
    features: NDArray[np.float32]
    labels: Names
    problem_ids: Names
    guess: Callable[[Names, Names], Names]
    """Function from labels and problem ids to guesses without the features."""


def _probe(target: _Target, *, num_bootstrap: int, seed: int) -> ProbeRow | None:
    """Run a probe. None with only one class, or fewer problems than folds."""
    # Imported here because the import takes seconds and many commands do not need it.
    from sklearn.model_selection import GroupKFold

    features, labels = target.features, target.labels
    problems, of_row = np.unique(target.problem_ids, return_inverse=True)
    classes = np.unique(labels)
    if len(classes) < 2 or len(problems) < FOLDS:
        return None
    hit = np.zeros(len(labels))
    splits = GroupKFold(n_splits=FOLDS, shuffle=True, random_state=seed_for(seed, "probe", target.name))
    for train, test in splits.split(features, labels, groups=of_row):
        if len(np.unique(labels[train])) < 2:
            hit[test] = labels[test] == labels[train][0]
            continue
        model = standardized_logistic(inverse_penalty=0.1, max_iter=300)
        model.fit(features[train], labels[train])
        hit[test] = model.predict(features[test]) == labels[test]
    sums = np.bincount(of_row, weights=hit, minlength=len(problems)).astype(np.float64)
    sizes = np.bincount(of_row, minlength=len(problems)).astype(float)
    bootstrap = Bootstrap.of(len(problems), num_bootstrap=num_bootstrap, seed=seed)
    guessed = labels == target.guess(labels, target.problem_ids)
    most = np.bincount(of_row, weights=guessed, minlength=len(problems)).astype(float)
    return ProbeRow(
        target=target.name,
        accuracy=bootstrap.ratio(sums, sizes),
        majority=float(guessed.mean()),
        num_classes=len(classes),
        num_candidates=len(labels),
        lift=bootstrap.ratio(sums - most, sizes),
    )
