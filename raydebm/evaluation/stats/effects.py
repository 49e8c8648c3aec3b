"""Effects of generators that answered different problems, as if all had answered the same.

Values are modelled as an effect of the problem plus an effect of the generator, fitted by least squares. Where every
generator answered every problem equally often, the differences between effects are those between plain means. Where a
recorded pool has one half of its problems from some generators and the other half from others, plain means compare the
difficulty of the halves.
"""

import numpy as np
from numpy.typing import NDArray

from raydebm.evaluation.stats.intervals import Floats


def comparable(problem: NDArray[np.int64], generator: NDArray[np.int64], *, num_generators: int) -> NDArray[np.bool_]:
    """(num_generators,): the group of generators that share problems, directly or through others, which answered most
    problems; of groups with equally many the one that comes first.

    Args:
        problem: (R,), any numbers that tell problems apart.
        generator: (R,), positions below ``num_generators``.
    """
    # Imported here because it takes time that commands which evaluate nothing need not spend.
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
    """(num_generators,): each generator's effect, mean 0 over those with a value; NaN for one without.

    Generators that share no problem, not even through others, cannot be compared: each such group has mean 0 of its
    own.

    Args:
        problem: (R,), any numbers that tell problems apart.
        generator: (R,), positions below ``num_generators``.
        values: (R,), without NaN.
    """
    _, place = np.unique(problem, return_inverse=True)
    shape = (int(place.max(initial=-1)) + 1, num_generators)
    cell = place * num_generators + generator
    counts = np.bincount(cell, minlength=shape[0] * num_generators).reshape(shape).astype(np.float64)
    sums = np.bincount(cell, weights=values, minlength=shape[0] * num_generators).reshape(shape)
    per_problem = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, per_problem, where=per_problem > 0, out=np.zeros_like(counts))
    # The normal equations after the problems' effects have been eliminated; the smallest solution has mean 0 in every
    # connected group of generators.
    system = np.diag(counts.sum(axis=0)) - shares.T @ counts
    effects: Floats = np.linalg.lstsq(system, sums.sum(axis=0) - shares.T @ sums.sum(axis=1), rcond=1e-10)[0]
    return np.where(counts.sum(axis=0) > 0, effects, np.nan)
