"""Packing of sequences of different lengths into rows of one length, which wastes little computation on padding."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from conversations import IGNORED, Encoded

PATIENCE = 6
"""Number of sequences that did not fit, after which a batch counts as full."""


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """Rows of whole sequences, shape ``(rows, width)``; ``same_sequence`` has shape ``(rows, 1, width, width)``."""

    ids: torch.Tensor
    labels: torch.Tensor
    positions: torch.Tensor
    """Positions, which restart at 0 with every sequence."""
    same_sequence: torch.Tensor
    """True where two positions belong to one sequence."""

    @property
    def causal_mask(self) -> torch.Tensor:
        """Attention of tokens to themselves and earlier ones of their sequence, shape ``(rows, 1, width, width)``."""
        width = self.ids.shape[1]
        return self.same_sequence & torch.ones(width, width, dtype=torch.bool).tril()


def pack(draw: Callable[[], Encoded], waiting: list[Encoded], *, rows: int, width: int, pad_id: int) -> PackedBatch:
    """Put each sequence into the first row with room, until ``PATIENCE`` sequences did not fit.

    Args:
        draw: source of new sequences; those longer than a row are dropped.
        waiting: sequences that did not fit into the last batch, changed in place. They are placed first, so that long
            ones are not lost.
    """
    places: list[tuple[int, int, Encoded]] = []
    used = [0] * rows
    candidates, homeless = [*waiting], list[Encoded]()
    while len(homeless) < PATIENCE:
        sequence = candidates.pop(0) if candidates else draw()
        row = next((row for row, start in enumerate(used) if start + len(sequence.ids) <= width), None)
        if row is not None:
            places.append((row, used[row], sequence))
            used[row] += len(sequence.ids)
        elif len(sequence.ids) <= width:
            homeless.append(sequence)
    waiting[:] = homeless + candidates
    return _batch(places, rows=rows, width=width, pad_id=pad_id)


def _batch(places: Sequence[tuple[int, int, Encoded]], *, rows: int, width: int, pad_id: int) -> PackedBatch:
    ids = torch.full((rows, width), pad_id)
    labels = torch.full((rows, width), IGNORED)
    positions = torch.zeros((rows, width), dtype=torch.long)
    owner = torch.full((rows, width), -1)
    for number, (row, start, sequence) in enumerate(places):
        length = len(sequence.ids)
        place = slice(start, start + length)
        ids[row, place] = torch.tensor(sequence.ids)
        labels[row, place] = torch.tensor(sequence.labels)
        positions[row, place] = torch.arange(length)
        owner[row, place] = number
    return PackedBatch(ids, labels, positions, owner[:, None, :, None] == owner[:, None, None, :])
