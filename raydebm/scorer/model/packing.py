"""Packed texts: an encoder reads several texts in one row, without padding between them.

In:   token ids of texts; the encoders of an ensemble.
Out:  rows of a few fixed sizes; the pooled states of their texts, equal to those of padded texts up to rounding.
Independent of: adapters, heads, energies.

transformers separates the texts of a row by position ids in decoders only. An encoder needs the texts' lengths (flash
attention) or masks (FlexAttention; SDPA on a CPU), which are made once per row for all adapters.

Shapes: B texts of a row, T tokens, D hidden size.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AttentionInterface
from transformers.masking_utils import (
    create_bidirectional_mask,
    create_bidirectional_sliding_window_mask,
    packed_sequence_mask_function,
)
from transformers.utils.import_utils import is_flash_attn_2_available

from raydebm.config import Pooling
from raydebm.scorer.model.backbone import Backbone
from raydebm.scorer.model.blocks import block_list
from raydebm.scorer.model.head import pooled

HAS_VARLEN = torch.__version__ >= "2.11"
"""Whether torch has variable-length flash attention with a window."""
if HAS_VARLEN:
    from torch.nn.attention.varlen import varlen_attn

LOG = logging.getLogger(__name__)

PACKED = False
"""Whether GPUs read packed texts. Not measured yet; see the part ``scoring`` of benchmarks/gpu_check.py."""
FAMILIES = frozenset({"bert", "modernbert"})
"""Types of encoders whose packed and padded energies the tests compare."""
COMPILE_AFTER = 1000
"""Full rows, counted once per adapter, before blocks are compiled: short calls should not wait for the compilation."""
MIN_ROW = 128
"""Tokens of the smallest row."""


def _torch_varlen(
    module: nn.Module, query: Any, key: Any, value: Any, mask: None, *, scaling: float, **options: Any
) -> tuple[Any, None]:
    """torch's flash attention as an attention function of transformers, on states of shape (1, H, T, D/H)."""
    ends, longest, window = options["cu_seq_lens_q"], options["max_length_q"], options.get("sliding_window")
    side = -1 if window is None else window - 1  # ModernBERT adds one
    query, key, value = (states[0].transpose(0, 1) for states in (query, key, value))
    output: Any = varlen_attn(
        query, key, value, ends, ends, longest, longest, scale=scaling, window_size=(side, side)
    )  # fmt: skip
    return output[None], None


AttentionInterface.register("torch_varlen", _torch_varlen)


def attention_for(backbone: Backbone) -> str | None:
    """Name in transformers of the attention for packed texts on the backbone's device; None if texts stay padded."""
    if backbone.family not in FAMILIES:
        return None
    if backbone.device.type == "cpu":
        return "sdpa"
    if backbone.dtype == "float32":  # flash attention needs 16 bits
        return None
    if is_flash_attn_2_available():
        return "flash_attention_2"
    return "torch_varlen" if HAS_VARLEN else "flex_attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Packed texts."""

    positions: list[int]
    """Indices of the texts in the list that is read, longest first."""
    lengths: list[int]
    """Number of tokens of each text."""
    inputs: dict[str, Any]
    """Arguments for the encoders."""
    is_full: bool
    """Whether the row has the whole budget's size, the only one that is compiled."""


class Packing:
    """Reading of packed texts by an ensemble's encoders.

    A row has the size of the token budget, or a half, a quarter, ... of it if that is enough. Blocks are compiled one
    at a time, and only for the whole budget, so that equal blocks of all encoders share the code.
    """

    def __init__(self, encoders: Sequence[Any], attention: str, *, max_tokens: int, pad_id: int) -> None:
        self.attention = attention
        for encoder in encoders:
            encoder.set_attn_implementation(attention)
        self.rows_to_compile: float = COMPILE_AFTER
        """Full rows left before the compilation, counted as in ``COMPILE_AFTER``."""
        self.is_compiled = False
        """Whether full rows are read by compiled blocks: after the compilation, if they are faster."""
        self.timing: dict[str, float] = {}
        """Seconds of the compilation, of an eager full row and of a compiled one; empty before the compilation."""
        self._encoder, self._max_tokens, self._pad_id = encoders[0], max_tokens, pad_id
        # On a CPU, blocks are only traced, so that tests need no compiler.
        backend = "inductor" if self._encoder.device.type == "cuda" else "eager"
        self._blocks = [block for encoder in encoders for block in block_list(encoder)[1]]
        self._eager = [block.forward for block in self._blocks]
        self._compiled = [torch.compile(forward, backend=backend) for forward in self._eager]

    def rows(self, ids: Sequence[Sequence[int]]) -> Iterator[Row]:
        """Rows that contain each text once. A text longer than the budget has a row of its own."""
        groups: list[list[int]] = []
        room = 0
        for position in sorted(range(len(ids)), key=lambda place: (-len(ids[place]), place)):
            if not groups or len(ids[position]) > room:
                groups.append([])
                room = self._max_tokens
            groups[-1].append(position)
            room -= len(ids[position])
        for positions in groups:
            yield self._row(positions, [ids[position] for position in positions])

    def _row(self, positions: list[int], texts: Sequence[Sequence[int]]) -> Row:
        lengths = [len(text) for text in texts]
        total, size, device = sum(lengths), self._max_tokens, self._encoder.device
        while size % (2 * MIN_ROW) == 0 and total <= size // 2:
            size //= 2
        # No filler is longer than the longest text, so that its positions are valid and its attention costs no more.
        num_fillers, rest = divmod(max(size - total, 0), lengths[0])
        pieces = [*lengths, *[lengths[0]] * num_fillers, *[rest] * (rest > 0)]
        tokens = [token for text in texts for token in text] + [self._pad_id] * (sum(pieces) - total)
        position_ids_T = torch.cat([torch.arange(length) for length in pieces])
        return Row(
            positions=positions,
            lengths=lengths,
            inputs={
                "input_ids": torch.tensor([tokens], device=device),
                "position_ids": position_ids_T[None].to(device),
                **self._borders(torch.tensor(pieces, device=device), longest=lengths[0], num_tokens=len(tokens)),
            },
            is_full=size == self._max_tokens >= total,
        )

    def _borders(self, lengths: Tensor, *, longest: int, num_tokens: int) -> dict[str, Any]:
        """Arguments of the encoders that let each text see only itself."""
        if self.attention in ("flash_attention_2", "torch_varlen"):
            ends = nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
            torch._dynamo.maybe_mark_dynamic(ends, 0)  # one compilation for any number of texts
            bound = 1 << (longest - 1).bit_length()  # few values, for the same reason
            return {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": bound, "max_length_k": bound}
        config = self._encoder.config
        numbers = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)[None]
        own: dict[str, Any] = {"and_mask_function": packed_sequence_mask_function(numbers)}
        # Only the shape and dtype of these states are used.
        states = torch.empty(1, num_tokens, 1, device=lengths.device, dtype=self._encoder.dtype)
        full = create_bidirectional_mask(config, states, None, **own)
        if not hasattr(config, "layer_types"):
            return {"attention_mask": full}
        window = create_bidirectional_sliding_window_mask(config, states, None, **own)
        return {"attention_mask": {"full_attention": full, "sliding_attention": window}}

    def features(self, encoder: nn.Module, row: Row, *, pooling: Pooling) -> Tensor:
        """Pooled states of a row's texts, shape (B, D), in the order of its positions."""
        if row.is_full and not self.timing:
            self.rows_to_compile -= 1
            if self.rows_to_compile < 0:
                self._compile(encoder, row)
        states_TD = self._read(encoder, row, is_compiled=row.is_full and self.is_compiled)
        states_BTD = pad_sequence(states_TD[: sum(row.lengths)].split(row.lengths), batch_first=True)
        mask_BT = pad_sequence([torch.ones(length, dtype=torch.long) for length in row.lengths], batch_first=True)
        # A copy: a view would keep the states of all tokens until the last adapter has run.
        return pooled(states_BTD, mask_BT.to(states_BTD.device), pooling=pooling).clone()

    def _read(self, encoder: nn.Module, row: Row, *, is_compiled: bool) -> Any:
        for block, forward in zip(self._blocks, self._compiled if is_compiled else self._eager, strict=True):
            block.forward = forward
        return encoder(**row.inputs).last_hidden_state[0]

    def _compile(self, encoder: nn.Module, row: Row) -> None:
        """Compile the blocks, keep them if they are faster than eager ones, and log the result."""
        LOG.info("compiling the encoder's blocks; this call waits for it")
        seconds = []
        try:
            for is_compiled in (False, False, True, True):  # the first of each warms up
                started = time.perf_counter()
                self._read(encoder, row, is_compiled=is_compiled)[0, 0].item()  # waits for the device
                seconds.append(time.perf_counter() - started)
        except RuntimeError as error:
            self.rows_to_compile = float("inf")
            LOG.warning("the encoder's blocks stay eager, because they cannot be compiled: %s", error)
            return
        _, eager, compilation, compiled = seconds
        self.timing = {"compile_s": compilation, "row_eager_s": eager, "row_compiled_s": compiled}
        self.is_compiled = compiled < eager
        kept = "compiled" if self.is_compiled else "eager"
        LOG.info(
            "compiled in %.0f s; a row takes %.4f s eager, %.4f compiled: %s kept", compilation, eager, compiled, kept
        )
