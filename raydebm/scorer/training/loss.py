"""The loss over the candidates of a step's problems: Bradley-Terry (paper, training objective).

Shapes: N distinct texts of a step, P pairs of a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from raydebm.errors import PoolError, ScoringError


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPairs:
    """Pairs of one step, as indices into its N distinct texts."""

    chosen: Tensor
    """Shape (P,), like ``rejected`` and ``weights``."""
    rejected: Tensor
    weights: Tensor
    """1 / (pairs of the pair's problem * problems): the mean over a problem's pairs, then over problems. Sums to 1."""
    problem_ids: tuple[str, ...]
    """Problem of each pair. Pairs of one problem are adjacent."""


def step_pairs(groups: Sequence[tuple[str, int, Sequence[tuple[int, int]]]], *, device: torch.device) -> StepPairs:
    """Concatenate the problems of a step.

    Args:
        groups: id, number of distinct texts, and pairs (chosen, rejected) of each problem.

    Raises:
        PoolError: a problem has no pairs.
    """
    chosen: list[int] = []
    rejected: list[int] = []
    weights: list[float] = []
    problem_ids: list[str] = []
    offset = 0
    for problem_id, num_texts, pairs in groups:
        if not pairs:
            raise PoolError(f"problem {problem_id!r} has no pairs; leave it out of training")
        chosen += [offset + pair[0] for pair in pairs]
        rejected += [offset + pair[1] for pair in pairs]
        weights += [1.0 / (len(pairs) * len(groups))] * len(pairs)
        problem_ids += [problem_id] * len(pairs)
        offset += num_texts
    return StepPairs(
        chosen=torch.tensor(chosen, device=device),
        rejected=torch.tensor(rejected, device=device),
        weights=torch.tensor(weights, device=device),
        problem_ids=tuple(problem_ids),
    )


def bradley_terry_loss(energies_N: Tensor, pairs: StepPairs) -> Tensor:
    """Mean softplus(E(chosen) - E(rejected)), over a problem's pairs, then over problems.

    Returns:
        Scalar in nats, float32. ln 2 for equal energies.

    Raises:
        ScoringError: an energy is NaN or infinite; the message names the problem.
    """
    energies_N = energies_N.float()
    losses_P = softplus(energies_N[pairs.chosen] - energies_N[pairs.rejected])
    finite_P = torch.isfinite(losses_P)
    if not bool(finite_P.all()):
        first = int((~finite_P).nonzero()[0, 0])
        loss = float(losses_P[first].detach())
        chosen = float(energies_N[pairs.chosen[first]].detach())
        rejected = float(energies_N[pairs.rejected[first]].detach())
        raise ScoringError(
            f"the loss of problem {pairs.problem_ids[first]!r} is {loss} (energies {chosen} and {rejected})"
        )
    return (losses_P * pairs.weights).sum()


def num_ordered(energies_N: Tensor, pairs: StepPairs) -> int:
    """Number of pairs in which the chosen candidate has strictly the lower energy."""
    return int((energies_N[pairs.chosen] < energies_N[pairs.rejected]).sum())
