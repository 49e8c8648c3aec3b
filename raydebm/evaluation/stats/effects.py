"""Effects of generators that answered different problems, as if all had answered the same.

Values are modelled as an effect of the problem plus an effect of the generator, fitted by least squares. If every
generator answered every problem equally often, the differences between effects equal those between plain means. If some
generators answered one half of the problems and the others answered the other half, plain means would compare the
difficulty of the halves.
"""

import numpy as np
from numpy.typing import NDArray

from raydebm.evaluation.stats.intervals import Floats


def comparable(problem: NDArray[np.int64], generator: NDArray[np.int64], *, num_generators: int) -> NDArray[np.bool_]:
    """Mask of the largest group of generators that share problems, directly or indirectly, shape (num_generators,).

    A group's size is its number of answered problems. Among groups of equal size, the first is used.

    Args:
        problem: Distinct number for each problem, shape (R,).
        generator: Indices below ``num_generators``, shape (R,).
    """
    # Imported here because the import is slow and most commands do not need it.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    _, place = np.unique(problem, return_inverse=True)
    num_problems = int(place.max(initial=-1)) + 1
    size = num_generators + num_problems
    edges = coo_array((np.ones(len(place)), (generator, num_generators + place)), shape=(size, size))
    _, group = connected_components(edges, directed=False)
    of_problems = np.bincount(group[num_generators:], minlength=int(group.max(initial=-1)) + 1)
    inside: NDArray[np.bool_] = group[:num_generators] == of_problems.argmax()
    return inside


def generator_effects(
    problem: NDArray[np.int64], generator: NDArray[np.int64], values: Floats, *, num_generators: int
) -> Floats:
    """Effect of each generator, shape (num_generators,). The mean over generators with values is 0; a generator without
    values has NaN.

    Generators that share no problems, even indirectly, cannot be compared: each connected group has its own mean of 0.

    Args:
        problem: Distinct number for each problem, shape (R,).
        generator: Indices below ``num_generators``, shape (R,).
        values: Values without NaN, shape (R,).
    """
    _, place = np.unique(problem, return_inverse=True)
    shape = (int(place.max(initial=-1)) + 1, num_generators)
    cell = place * num_generators + generator
    counts = np.bincount(cell, minlength=shape[0] * num_generators).reshape(shape).astype(np.float64)
    sums = np.bincount(cell, weights=values, minlength=shape[0] * num_generators).reshape(shape)
    per_problem = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, per_problem, where=per_problem > 0, out=np.zeros_like(counts))
    # Normal equations after eliminating the problems' effects; the smallest solution has mean 0 in every connected
    # group of generators.
    system = np.diag(counts.sum(axis=0)) - shares.T @ counts
    effects: Floats = np.linalg.lstsq(system, sums.sum(axis=0) - shares.T @ sums.sum(axis=1), rcond=1e-10)[0]
    return np.where(counts.sum(axis=0) > 0, effects, np.nan)
