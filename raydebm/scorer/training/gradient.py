"""The exact gradient of one step, in micro-batches of similar length. Equal texts are read once.

A pair couples two texts, so the loss of a step needs the energies of all its texts. If their graphs fit in memory, all
are kept. Otherwise energies are computed without graphs, and each micro-batch runs again with the derivative of the
loss with respect to its energies, in pieces whose graphs fit. Both ways give the gradient of the whole step.

Shapes: B texts of a micro-batch, N distinct texts of a step.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from raydebm.scorer.model.batching import MicroBatch
from raydebm.scorer.training.loss import StepPairs, bradley_terry_loss
from raydebm.scorer.training.member import EnsembleMember, gather


def backward(
    member: EnsembleMember,
    batches: Sequence[MicroBatch],
    pairs: StepPairs,
    *,
    scaler: torch.amp.GradScaler,
    max_graph_bytes: float,
) -> float:
    """Add the gradient of the step's (scaled) loss to the parameters of adapter and head.

    Args:
        batches: micro-batches that contain each of the N texts once.
        pairs: pairs to compare, as indices of the N texts.
        scaler: scaler of float16 mixed precision; disabled otherwise.
        max_graph_bytes: estimated memory of the graphs above which the step runs in two phases, in pieces that fit. A
            single text is never split.

    Returns:
        The loss, unscaled.

    Raises:
        ScoringError: the loss is NaN or infinite.
    """
    if member.graph_bytes(batches) > max_graph_bytes:
        pieces = [piece for batch in batches for piece in _pieces(member, batch, max_graph_bytes)]
        return _backward_in_two_phases(member, pieces, pairs, scaler=scaler)
    energies_N = gather([member(batch.to(member.device)) for batch in batches], batches)
    loss = bradley_terry_loss(energies_N, pairs)
    _backward(scaler.scale(loss))
    return float(loss.detach())


def _pieces(member: EnsembleMember, batch: MicroBatch, max_graph_bytes: float) -> list[MicroBatch]:
    """The batch, halved until the graph of each piece fits.

    Halved rather than filled: dropout is sampled per piece, so a slightly different limit at the next start should give
    the same pieces.
    """
    if len(batch.positions) == 1 or member.graph_bytes([batch]) <= max_graph_bytes:
        return [batch]
    middle = len(batch.positions) // 2
    halves = (batch.rows(slice(None, middle)), batch.rows(slice(middle, None)))
    return [piece for half in halves for piece in _pieces(member, half, max_graph_bytes)]


def _backward_in_two_phases(
    member: EnsembleMember, batches: Sequence[MicroBatch], pairs: StepPairs, *, scaler: torch.amp.GradScaler
) -> float:
    states: list[list[Tensor]] = []
    energies: list[Tensor] = []
    with torch.no_grad():
        for batch in batches:
            states.append(_rng_state(member.device))
            energies.append(member(batch.to(member.device)))
    energies_N = gather(energies, batches).requires_grad_()
    loss = bradley_terry_loss(energies_N, pairs)
    (gradient_N,) = torch.autograd.grad(scaler.scale(loss), energies_N)
    after = _rng_state(member.device)
    for batch, state in zip(batches, states, strict=True):
        _set_rng_state(state, member.device)  # the same dropout as in the first phase
        _backward(member(batch.to(member.device)), gradient_N[list(batch.positions)])
    _set_rng_state(after, member.device)
    return float(loss.detach())


def _backward(tensor: Any, gradient: Tensor | None = None) -> None:
    tensor.backward(gradient)


def _rng_state(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


def _set_rng_state(states: Sequence[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
