"""Logistic regression on standardised features, used by several selectors, signals and probes."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

SAMPLE_WEIGHT = "logisticregression__sample_weight"
"""Name of the argument of ``fit`` for a weight per row."""


def standardized_logistic(*, inverse_penalty: float = 1.0, max_iter: int = 100) -> "Pipeline":
    """An unfitted logistic regression on standardised features.

    Args:
        inverse_penalty: scikit-learn's C. Smaller values have a stronger L2 penalty.
    """
    # Imported here because the import takes seconds and many commands do not need it.
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(C=inverse_penalty, max_iter=max_iter))
