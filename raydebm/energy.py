"""Total energy E = mu + lambda * E_constraint (paper Eq. 1), for one candidate and for arrays."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def total_energy(mu: float, penalty: float, lambda_: float) -> float:
    """E of one candidate; +inf if the penalty is +inf (it did not parse), even with lambda 0."""
    return math.inf if math.isinf(penalty) else mu + lambda_ * penalty


def total_energies(mu: "Floats", penalty: "Floats", lambda_: float) -> "Floats":
    """Total energies, elementwise.

    Args:
        mu: mean energies, any shape; NaN where not scored.
        penalty: E_constraint, same shape.
        lambda_: weight of the penalty, >= 0.

    Returns:
        Same shape: +inf where the penalty is +inf, else NaN where mu is NaN.
    """
    import numpy as np

    parsed = np.isfinite(penalty)
    return np.where(parsed, mu + lambda_ * np.where(parsed, penalty, 0.0), math.inf)
