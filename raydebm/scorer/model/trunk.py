"""The blocks below the lowest adapted one, computed once for all adapters of an ensemble.

Each adapter has a copy of one frozen encoder, and the copies differ from their lowest adapted block upwards. Below it
they compute the same states, so the first copy stores its output there for each batch, and the others reuse it. In
these blocks, only the first copy needs the keys and values of a prefix.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from torch import nn

from raydebm.scorer.model.blocks import block_list


def lowest_adapted(encoder: nn.Module, modules: Iterable[str]) -> int:
    """Number of the lowest block that contains one of the named modules; 0 if a module is in no block."""
    prefix, blocks = block_list(encoder)
    numbers = []
    for name in modules:
        number = name.removeprefix(f"{prefix}.").partition(".")[0]
        numbers.append(int(number) if name.startswith(f"{prefix}.") and number.isdigit() else 0)
    return min(numbers, default=len(blocks))


class Trunk:
    """The lowest blocks of several encoders, which share their outputs."""

    def __init__(self, encoders: Sequence[nn.Module], num_blocks: int) -> None:
        """Share the lowest ``num_blocks`` blocks, which must compute the same in all encoders."""
        self._outputs: dict[int, Any] = {}
        self._batch = 0
        for encoder in encoders:
            _, blocks = block_list(encoder)
            for number in range(num_blocks):
                blocks[number] = _SharedBlock(blocks[number], self, is_last=number == num_blocks - 1)

    def forget(self) -> None:
        """Drop the stored outputs before other texts are read."""
        self._outputs.clear()

    def turn_to(self, batch: int) -> None:
        """Choose which of several batches the encoders read next."""
        self._batch = batch

    def run(self, block: nn.Module, is_last: bool, states: Any, *arguments: Any, **options: Any) -> Any:
        """Output of a block. Once the trunk's output is stored, its last block returns it, and the others return their
        input."""
        stored = self._outputs.get(self._batch)
        if stored is None:
            output = block(states, *arguments, **options)
            if is_last:
                self._outputs[self._batch] = output
            return output
        if is_last:
            return stored
        # In some families blocks return a tuple, states first.
        return (states, *stored[1:]) if isinstance(stored, tuple) else states


class _SharedBlock(nn.Module):
    """A block of the trunk, in place of the encoder's own."""

    def __init__(self, block: nn.Module, trunk: Trunk, *, is_last: bool) -> None:
        super().__init__()
        self.block = block
        self._trunk, self._is_last = trunk, is_last

    def forward(self, states: Any, *arguments: Any, **options: Any) -> Any:
        """Run the block, with the states as the first argument."""
        return self._trunk.run(self.block, self._is_last, states, *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._modules["block"], name)  # encoders ask a block for its kind of attention
