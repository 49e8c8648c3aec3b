"""Linear heads on frozen features, learned from pairs of a right and a wrong answer. No torch.

In:   features of the texts of each training problem, and the pairs among them.
Out:  a score per text, higher is better.
Does not know: where the features come from.

Features are standardised and projected on their first K principal components; a head is the weight vector w that
minimises the Bradley-Terry loss, the mean over problems of the mean over pairs of -log sigma(w (x_right - x_wrong)),
plus |w|^2 / (2 C). C is the one with the lowest loss on problems left out, the same for all heads.

Problems are dealt into folds, and each head learns from all folds but one. A text of a training problem is scored by
the head that did not learn from it, any other by the mean over heads: so scores of training problems are like those of
unseen ones, and the posterior may learn from them.

Shapes: N texts, D features, K components, P pairs, F folds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydebm.errors import PoolError
from raydebm.pairs import TrainingGroup, deal_folds

Floats = NDArray[np.float64]
INVERSE_PENALTIES = (0.001, 0.01, 0.1, 1.0)
"""The values of C that are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearHeads:
    """One head per fold, and the projection that they share."""

    mean_D: Floats  # noqa: N815
    """Mean of each feature over the training texts."""
    projection_DK: Floats  # noqa: N815
    """Divides by the standard deviation and projects on the components."""
    weights_FK: Floats  # noqa: N815
    inverse_penalty: float
    """C."""
    loss: float
    """Mean loss over the problems left out, in nats; ln 2 is chance."""

    def scores(self, features_ND: Floats, folds: Sequence[int | None]) -> Floats:  # noqa: N803
        """Scores, shape (N,).

        Args:
            folds: of each text's problem; None: no head learned from it.
        """
        all_NF = (features_ND - self.mean_D) @ self.projection_DK @ self.weights_FK.T  # noqa: N806
        own = [row.mean() if fold is None else row[fold] for row, fold in zip(all_NF, folds, strict=True)]
        return np.array(own, dtype=float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """All pairs: right minus wrong in K components, a pair's weight, and the folds of the problems of both answers."""

    values_PK: Floats  # noqa: N815
    weights_P: Floats  # noqa: N815
    folds_P2: NDArray[np.int64]  # noqa: N815


def fit_heads(
    groups: Sequence[TrainingGroup],
    features: Mapping[str, Floats],
    *,
    num_components: int,
    num_folds: int,
    seed: int,
) -> tuple[LinearHeads, dict[str, int]]:
    """Fit the projection and one head per fold.

    Args:
        groups: problems with their pairs.
        features: problem id -> features of its texts, in their order, shape (texts, D).
        num_components: K; fewer where there are fewer texts or features.
        num_folds: F.
        seed: of the folds.

    Returns:
        The heads, and the fold of each problem by its prompt.

    Raises:
        PoolError: fewer problems than folds have pairs.
    """
    if len(groups) < num_folds:
        raise PoolError(
            f"{len(groups)} training problems have a right and a wrong answer, and {num_folds} folds need as many; "
            "sample more problems or candidates, or lower the number of folds"
        )
    by_id = deal_folds({group.problem_id: group.prompt for group in groups}, count=num_folds, seed=seed)
    mean_D, projection_DK = projection(np.vstack([features[group.problem_id] for group in groups]), num_components)  # noqa: N806
    differences = _differences(groups, features, projection_DK, by_id)
    heads = heads_of(differences, mean_D, projection_DK, num_folds=num_folds)
    return heads, {group.prompt: by_id[group.problem_id] for group in groups}


def heads_of(
    differences: Differences,
    mean_D: Floats,  # noqa: N803
    projection_DK: Floats,  # noqa: N803
    *,
    num_folds: int,
) -> LinearHeads:
    """One head per fold, learned from the pairs neither of whose answers belongs to it."""
    losses = {penalty: _held_out_loss(differences, penalty, num_folds) for penalty in INVERSE_PENALTIES}
    best = min(INVERSE_PENALTIES, key=lambda penalty: losses[penalty])
    return LinearHeads(
        mean_D=mean_D,
        projection_DK=projection_DK,
        weights_FK=np.vstack([_fit(differences, best, left_out=fold) for fold in range(num_folds)]),
        inverse_penalty=best,
        loss=losses[best],
    )


def projection(features_ND: Floats, num_components: int) -> tuple[Floats, Floats]:  # noqa: N803
    """The mean of each feature, and the matrix that standardises and projects."""
    # Imported here because it takes seconds, which a service that only scores need not wait for.
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import StandardScaler

    scaler: Any = StandardScaler().fit(features_ND)
    analysis: Any = PCA(min(num_components, *features_ND.shape), random_state=0)
    analysis.fit(scaler.transform(features_ND))
    return scaler.mean_, (analysis.components_ / scaler.scale_).T


def _differences(
    groups: Sequence[TrainingGroup],
    features: Mapping[str, Floats],
    projection_DK: Floats,  # noqa: N803
    folds: Mapping[str, int],
) -> Differences:
    values, weights, of_fold = [], [], []
    for group in groups:
        projected = features[group.problem_id] @ projection_DK
        right, wrong = (list(side) for side in zip(*group.pairs, strict=True))
        values.append(projected[right] - projected[wrong])
        weights.append(np.full(len(group.pairs), 1 / len(group.pairs)))
        of_fold.append(np.full((len(group.pairs), 2), folds[group.problem_id]))
    return Differences(values_PK=np.vstack(values), weights_P=np.concatenate(weights), folds_P2=np.vstack(of_fold))


def _held_out_loss(differences: Differences, inverse_penalty: float, num_folds: int) -> float:
    loss = weight = 0.0
    for fold in range(num_folds):
        held = (differences.folds_P2 == fold).all(axis=1)
        margins = differences.values_PK[held] @ _fit(differences, inverse_penalty, left_out=fold)
        loss += float(differences.weights_P[held] @ np.logaddexp(0.0, -margins))
        weight += float(differences.weights_P[held].sum())
    return loss / weight


def _fit(differences: Differences, inverse_penalty: float, *, left_out: int) -> Floats:
    """The weights, shape (K,). Every pair is given both ways round, so that the classifier sees two classes."""
    from sklearn.linear_model import LogisticRegression  # here for the reason above

    used = (differences.folds_P2 != left_out).all(axis=1)
    values, weights = differences.values_PK[used], differences.weights_P[used]
    model: Any = LogisticRegression(C=inverse_penalty, fit_intercept=False, max_iter=1000)
    model.fit(
        np.vstack([values, -values]),
        np.repeat([1, 0], len(values)),
        sample_weight=np.concatenate([weights, weights]) / 2,
    )
    return np.asarray(model.coef_[0], dtype=float)
