"""Order statistics within rows: numbers of lower and of equal values, and comparison of two classes."""

import math

import numpy as np

from raydebm.evaluation.pools.pool import Bools, Floats, Ints


def standings(values: Floats) -> tuple[Ints, Ints]:
    """Numbers of lower values and of equal values (including itself) in the row, shape (P, N) each.

    Args:
        values: Values without NaN, shape (P, N).
    """
    order = np.argsort(values, axis=1, kind="stable")
    starts, ends = _ties(np.take_along_axis(values, order, axis=1))
    lower, equal = np.empty_like(order), np.empty_like(order)
    np.put_along_axis(lower, order, starts, axis=1)
    np.put_along_axis(equal, order, ends - starts, axis=1)
    return lower, equal


def _ties(ordered: Floats) -> tuple[Ints, Ints]:
    """Start and end of each run of equal values in ascending rows, shape (P, N) each."""
    places = np.arange(ordered.shape[1])
    changes = ordered[:, 1:] != ordered[:, :-1]
    starts = np.zeros(ordered.shape, dtype=np.intp)
    starts[:, 1:] = np.where(changes, places[1:], 0)
    ends = np.full(ordered.shape, ordered.shape[1], dtype=np.intp)
    ends[:, :-1] = np.where(changes, places[1:], ordered.shape[1])
    return (
        np.maximum.accumulate(starts, axis=1),
        np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1],
    )


def pair_accuracies(energy: Floats, correct: Floats) -> Floats:
    """Share of (correct, incorrect) pairs in which the correct one has the lower energy, shape (P,). Ties count half.

    Args:
        energy: Energies, shape (P, N). Candidates with NaN are excluded.
        correct: 1, 0, or NaN for unlabelled, shape (P, N).
    """
    scored = ~np.isnan(energy)
    filled = np.where(scored, energy, math.inf)
    order = np.argsort(filled, axis=1)
    starts, ends = _ties(np.take_along_axis(filled, order, axis=1))
    good, bad = (np.take_along_axis(scored & (correct == label), order, axis=1) for label in (1, 0))
    below = np.zeros((len(bad), bad.shape[1] + 1), dtype=np.intp)
    np.cumsum(bad, axis=1, out=below[:, 1:])
    num_bad = below[:, -1:]
    lower = num_bad - np.take_along_axis(below, ends, axis=1)
    equal = np.take_along_axis(below, ends, axis=1) - np.take_along_axis(below, starts, axis=1)
    wins = np.where(good, lower + 0.5 * equal, 0.0).sum(axis=1)
    pairs = good.sum(axis=1) * num_bad[:, 0]
    share: Floats = np.divide(wins, pairs, where=pairs > 0, out=np.full(len(pairs), math.nan))
    return share


def medians(values: Floats, mask: Bools) -> Floats:
    """Median of each row within the mask, shape (P,). NaN if the mask is empty."""
    count = mask.sum(axis=1)
    ordered = np.sort(np.where(mask, values, math.inf), axis=1)
    rows, middle = np.arange(len(values)), np.maximum(count, 1)
    median: Floats = (ordered[rows, (middle - 1) // 2] + ordered[rows, middle // 2]) / 2
    return np.where(count > 0, median, math.nan)
