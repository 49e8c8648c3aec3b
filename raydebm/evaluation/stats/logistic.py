"""Logistic regression on standardized features, which several selectors, signals and probes fit."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

SAMPLE_WEIGHT = "logisticregression__sample_weight"
"""The name by which ``fit`` takes a weight per row."""


def standardized_logistic(*, inverse_penalty: float = 1.0, max_iter: int = 100) -> "Pipeline":
    """An unfitted logistic regression on standardised features.

    Args:
        inverse_penalty: scikit-learn's C; the smaller, the stronger the L2 penalty.
    """
    # Imported here because it takes seconds, which commands that fit nothing need not wait for.
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(C=inverse_penalty, max_iter=max_iter))
