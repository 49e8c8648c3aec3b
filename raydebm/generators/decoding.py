"""Batched decoding of any causal LM, in which a row's text does not depend on the rest of the batch.

Every row has its own random numbers, so the same request gives the same text alone and in a batch of 256 (up to
rounding: batch sizes change the order of floating-point sums, which rarely changes a token in float32 and sometimes in
bfloat16). This is faster than ``generate`` on small models: equal prompts are read once, finished rows leave the batch,
and the key-value cache grows in place.

Shape letters: B rows still decoding, V vocabulary, T positions.

Independent of: text, chat, requests.
"""

import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer

_NUCLEUS_PROBE = 64
"""Top tokens to try before a full sort of the vocabulary; a nucleus is usually smaller."""
_COMPACT_FRAC = 0.125
"""Fraction of finished rows at which they are removed from the batch. Moving the cache costs about two steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRow:
    """One completion to sample."""

    prompt_ids: tuple[int, ...]
    seed: int
    temperature: float
    top_p: float
    max_new_tokens: int


@dataclass(slots=True)
class DecodedRow:
    token_ids: list[int] = field(default_factory=list)
    """New tokens, without the end-of-sequence token."""
    finish_reason: Literal["stop", "length"] = "length"


class _GrowingLayer(DynamicLayer):  # type: ignore[no-untyped-call]  # transformers' class hook is untyped
    """A full-attention cache layer with spare room, so that a step does not copy the whole cache."""

    _ROOM = 64
    _stored_keys: Tensor
    _stored_values: Tensor

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._stored_keys, self._stored_values = key_states[:, :, :0], value_states[:, :, :0]
            self._expose(0)
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if end > self._stored_keys.shape[-2]:
            self._move(start, capacity=end + self._ROOM)
        self._stored_keys[:, :, start:end] = key_states
        self._stored_values[:, :, start:end] = value_states
        return self._expose(end)

    def reorder_cache(self, beam_idx: Any) -> None:
        length = self.get_seq_length()
        self._move(length, capacity=length + self._ROOM, rows=beam_idx)
        self._expose(length)

    def _move(self, length: int, *, capacity: int, rows: Tensor | None = None) -> None:
        self._stored_keys = _enlarged(self._stored_keys[:, :, :length], capacity, rows=rows)
        self._stored_values = _enlarged(self._stored_values[:, :, :length], capacity, rows=rows)

    def _expose(self, length: int) -> tuple[Tensor, Tensor]:
        keys, values = self._stored_keys[:, :, :length], self._stored_values[:, :, :length]
        self.keys, self.values = keys, values
        return keys, values


def _enlarged(states: Tensor, capacity: int, *, rows: Tensor | None = None) -> Tensor:
    count, heads, length, width = states.shape
    store = states.new_empty((count if rows is None else len(rows), heads, capacity, width))
    store[:, :, :length] = states if rows is None else states.index_select(0, rows)
    return store


def _growing_cache(config: Any) -> Any:
    """The model's own kind of cache, with growing full-attention layers."""
    cache = DynamicCache(config=config)
    new: Callable[[], DynamicLayer] = _GrowingLayer
    cache.layers = [new() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


@torch.inference_mode()
def decode(
    model: Any,
    rows: Sequence[DecodeRow],
    *,
    eos_ids: Sequence[int],
    pad_id: int,
    should_stop: Callable[[int, list[int]], bool] | None = None,
    cancelled: threading.Event | None = None,
) -> list[DecodedRow]:
    """Sample one completion per row, in the order of the rows.

    Args:
        model: a ``transformers`` causal LM in eval mode. Each prompt plus its ``max_new_tokens`` must fit the context.
        eos_ids: tokens that end a completion.
        pad_id: any token, because padding is masked.
        should_stop: function of (row index, its new tokens) that is called after each token, for stop strings.
        cancelled: event that ends decoding after the current step. Rows may then be unfinished.
    """
    batch = _DecodingBatch(model, rows, eos_ids=eos_ids, pad_id=pad_id)
    while batch.num_alive and not (cancelled is not None and cancelled.is_set()):
        batch.step(should_stop)
    return batch.decoded


class _DecodingBatch:
    """Rows that are decoded together, with their cache and tokens."""

    def __init__(self, model: Any, rows: Sequence[DecodeRow], *, eos_ids: Sequence[int], pad_id: int) -> None:
        self._model, self._device = model, model.device
        self.decoded = [DecodedRow() for _ in rows]
        self._rows = list(rows)
        self._active = [index for index, row in enumerate(rows) if row.max_new_tokens > 0]
        self._done = [False] * len(self._active)
        self._eos, self._pad_id = frozenset(eos_ids), pad_id
        if not self._active:
            return
        active = [self._rows[index] for index in self._active]
        self._temperature_B = torch.tensor([row.temperature for row in active], device=self._device)
        self._top_p_B = torch.tensor([row.top_p for row in active], device=self._device)
        self._chances_BT = _chances(active).to(self._device)
        self._step = 0
        self._read_prompts(active)

    @property
    def num_alive(self) -> int:
        return self._done.count(False)

    def _read_prompts(self, active: list[DecodeRow]) -> None:
        """Left-pad and read each distinct prompt once, then copy its cache to every row."""
        distinct = {prompt: index for index, prompt in enumerate(dict.fromkeys(row.prompt_ids for row in active))}
        width = max(map(len, distinct))
        ids = [[self._pad_id] * (width - len(prompt)) + list(prompt) for prompt in distinct]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in distinct]
        self._mask_BT = torch.tensor(mask, device=self._device)
        self._cache = _growing_cache(self._model.config)
        positions = (self._mask_BT.cumsum(-1) - 1).clamp(min=0)
        logits_BV = self._forward(torch.tensor(ids, device=self._device), positions)
        owner_B = torch.tensor([distinct[row.prompt_ids] for row in active], device=self._device)
        if len(distinct) < len(active):
            self._cache.reorder_cache(owner_B)
        else:
            owner_B = torch.arange(len(active), device=self._device)
        self._mask_BT, self._logits_BV = self._mask_BT[owner_B], logits_BV[owner_B]
        self._position_B = positions[owner_B, -1]

    def _forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        options = {"logits_to_keep": 1} if _keeps_last_logits(type(self._model)) else {}
        output = self._model(
            input_ids=ids,
            attention_mask=self._mask_BT,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            **options,
        )
        last: Tensor = output.logits[:, -1]
        return last

    def step(self, should_stop: Callable[[int, list[int]], bool] | None) -> None:
        """Sample one token for every active row, then run the model on them unless all are done."""
        logits_BV = self._logits_BV.float()
        tokens_B = draw(
            logits_BV,
            temperature_B=self._temperature_B,
            top_p_B=self._top_p_B,
            chance_B=self._chances_BT[:, self._step],
        )
        self._step += 1
        for slot, token in enumerate(tokens_B.tolist()):
            if not self._done[slot]:
                self._done[slot] = self._write(self._active[slot], token, should_stop)
        if not self.num_alive:
            return
        if self._done.count(True) >= max(1, _COMPACT_FRAC * len(self._done)):
            tokens_B = tokens_B[self._drop_done()]
        self._mask_BT = torch.cat([self._mask_BT, self._mask_BT.new_ones((len(tokens_B), 1))], dim=1)
        self._position_B = self._position_B + 1
        self._logits_BV = self._forward(tokens_B[:, None], self._position_B[:, None])

    def _write(self, index: int, token: int, should_stop: Callable[[int, list[int]], bool] | None) -> bool:
        """Add a token to a row's completion; returns whether the row is done."""
        decoded = self.decoded[index]
        if token in self._eos:
            decoded.finish_reason = "stop"
            return True
        decoded.token_ids.append(token)
        if should_stop is not None and should_stop(index, decoded.token_ids):
            decoded.finish_reason = "stop"
            return True
        return len(decoded.token_ids) >= self._rows[index].max_new_tokens

    def _drop_done(self) -> Tensor:
        slots = [slot for slot, done in enumerate(self._done) if not done]
        rows = torch.tensor(slots, device=self._device)
        self._cache.reorder_cache(rows)
        self._active = [self._active[slot] for slot in slots]
        self._done = [False] * len(slots)
        self._mask_BT, self._position_B = self._mask_BT[rows], self._position_B[rows]
        self._temperature_B, self._top_p_B = self._temperature_B[rows], self._top_p_B[rows]
        self._chances_BT = self._chances_BT[rows]
        return rows


def _keeps_last_logits(model_class: type) -> bool:
    """Whether the model can limit a prompt's logits to the last position."""
    return "logits_to_keep" in inspect.signature(model_class.forward).parameters  # type: ignore[attr-defined]


def _chances(rows: Sequence[DecodeRow]) -> Tensor:
    """Uniform numbers in [0, 1) by row and step, from each row's own seed. float64, shape (B, T)."""
    length = max(row.max_new_tokens for row in rows)
    chances = torch.zeros((len(rows), length), dtype=torch.float64)
    for index, row in enumerate(rows):
        if row.temperature > 0:
            generator = torch.Generator().manual_seed(row.seed)
            chances[index, : row.max_new_tokens] = torch.rand(
                row.max_new_tokens, generator=generator, dtype=torch.float64
            )
    return chances


def draw(logits_BV: Tensor, *, temperature_B: Tensor, top_p_B: Tensor, chance_B: Tensor) -> Tensor:
    """Sample one token per row: the most likely at temperature 0, else the first at which the cumulative distribution
    of the nucleus exceeds ``chance``, a uniform number in [0, 1).

    The nucleus is the smallest set of most likely tokens whose probability reaches ``top_p``. It is ordered by
    token id, so that rounding that swaps two nearly equal probabilities does not change the token.
    """
    tokens_B = logits_BV.argmax(-1)
    greedy_B = temperature_B == 0
    probabilities_BV = torch.softmax(logits_BV / temperature_B.masked_fill(greedy_B, 1.0)[:, None], dim=-1)
    peak_B = probabilities_BV.gather(1, tokens_B[:, None])[:, 0]
    # A peak that reaches top_p is a nucleus by itself: most tokens of a trained model end here, without a sort.
    open_rows = (~greedy_B & (peak_B < top_p_B)).nonzero()[:, 0]
    if len(open_rows):
        tokens_B[open_rows] = _draw_from_nucleus(probabilities_BV[open_rows], top_p_B[open_rows], chance_B[open_rows])
    return tokens_B


def _draw_from_nucleus(probabilities_BV: Tensor, top_p_B: Tensor, chance_B: Tensor) -> Tensor:
    count = min(_NUCLEUS_PROBE, probabilities_BV.shape[1])
    top_BT, ids_BT = probabilities_BV.double().topk(count, dim=-1)
    tokens_B = _invert(top_BT, ids_BT, top_p_B, chance_B)
    wide_rows = (top_BT.sum(-1) < top_p_B).nonzero()[:, 0]
    if count < probabilities_BV.shape[1] and len(wide_rows):
        all_BV, ids_BV = probabilities_BV[wide_rows].double().sort(dim=-1, descending=True)
        tokens_B[wide_rows] = _invert(all_BV, ids_BV, top_p_B[wide_rows], chance_B[wide_rows])
    return tokens_B


def _invert(sorted_BT: Tensor, ids_BT: Tensor, top_p_B: Tensor, chance_B: Tensor) -> Tensor:
    """Tokens sampled by inverting the cumulative distribution. Each row is sorted by probability, highest first."""
    mass_before = sorted_BT.cumsum(-1) - sorted_BT
    nucleus_BT = torch.where(mass_before < top_p_B[:, None], sorted_BT, 0.0)
    ids_BT, order = ids_BT.sort(dim=-1)
    cumulative = nucleus_BT.gather(1, order).cumsum(-1)
    target = chance_B[:, None] * cumulative[:, -1:]
    position = (cumulative <= target).sum(-1, keepdim=True).clamp(max=ids_BT.shape[1] - 1)
    return ids_BT.gather(1, position)[:, 0]
