"""The energy E = mu + lambda * E_constraint that ranks candidates (paper Eq. 1), for one candidate and for arrays."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def total_energy(mu: float, penalty: float, lambda_: float) -> float:
    """E of one candidate; +inf where the penalty is (it did not parse), also with lambda 0."""
    return math.inf if math.isinf(penalty) else mu + lambda_ * penalty


def total_energies(mu: "Floats", penalty: "Floats", lambda_: float) -> "Floats":
    """``total_energy`` elementwise.

    Args:
        mu: mean energies, any shape; NaN where nothing was scored.
        penalty: E_constraint, of the same shape.
        lambda_: its weight, >= 0.

    Returns:
        Of the same shape: +inf where the penalty is, else NaN where mu is.
    """
    import numpy as np

    parsed = np.isfinite(penalty)
    return np.where(parsed, mu + lambda_ * np.where(parsed, penalty, 0.0), math.inf)
