"""Common prefixes of texts, such as the problem before its candidates, which a decoder reads once.

In:   token ids; a decoder.
Out:  ``Reading``: prefixes, and the rest of each text; the inputs of a head.
Independent of: adapters, energies, problems.

The states of a causal model do not depend on later tokens, so the keys and values of a prefix are the same for all
texts that begin with it.

Shapes: P prefixes, B texts of a micro-batch, T tokens after the prefix, D hidden size.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache, DynamicLayer

from raydebm.config import Pooling
from raydebm.scorer.model.batching import MIN_TOKENS, MicroBatch, micro_batches, pad, plan_micro_batches
from raydebm.scorer.model.head import pooled

MIN_PREFIX = 32
"""Tokens of the shortest prefix that is read once."""
MIN_SAVED = {"cpu": MIN_PREFIX, "cuda": MIN_TOKENS["cuda"]}
"""Tokens that prefixes must save in a list of texts, by type of device: on a GPU, saving fewer costs more time."""
KEYS_PER_TOKEN = 4
"""Maximum number of tokens whose keys and values a micro-batch copies, per token of a forward pass. Those of four
tokens, repeated for each head, take at most the memory of one token in the layer's feed-forward."""
FAMILIES = frozenset({"gemma", "gpt_neox", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3", "smollm3"})
"""Types of decoders whose energies with and without shared prefixes the tests compare."""


def shares_prefixes(config: Any) -> bool:
    """Whether a model reads prefixes once: one of ``FAMILIES`` that keeps the keys and values of every token.

    Models with a sliding window, or with rotary frequencies that depend on a text's length, read whole texts.
    """
    if config.model_type not in FAMILIES:
        return False
    rotary = str(getattr(config, "rope_parameters", None))
    if "dynamic" in rotary or "longrope" in rotary:
        return False
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A step of the plan: whole texts, or prefixes and the rest of each text."""

    positions: list[int]
    """Indices of the texts in the list that is read, in the order of the batches' rows."""
    batches: list[MicroBatch]
    """The texts, without their prefixes if there are any. The ``positions`` of these batches are not used."""
    prefixes: MicroBatch | None = None
    owners: list[int] = field(default_factory=list)
    """Row in ``prefixes`` of each text."""


def readings(
    ids: Sequence[Sequence[int]], *, max_tokens: int, pad_id: int, device: str = "cpu", shares: bool = False
) -> Iterator[Reading]:
    """Plan the reading of a list of texts. Each text occurs once.

    Args:
        max_tokens: maximum of padded tokens per forward pass. Passes after prefixes have fewer by the prefixes' tokens,
            but at least half.
        device: type of the device that will read them.
        shares: whether to read common prefixes once.
    """
    groups = common_prefixes(ids) if shares else []
    if sum(length * (len(positions) - 1) for length, positions in groups) < MIN_SAVED.get(device, MIN_SAVED["cuda"]):
        groups = []
    grouped = {position for _, positions in groups for position in positions}
    alone = [position for position in range(len(ids)) if position not in grouped]
    whole = [ids[position] for position in alone]
    for batch in micro_batches(whole, max_tokens=max_tokens, pad_id=pad_id, device=device):
        yield Reading(positions=[alone[place] for place in batch.positions], batches=[batch])
    lengths = [length for length, _ in groups]
    for plan in plan_micro_batches(lengths, max_tokens=max_tokens // 2, device=device):
        chosen = [groups[place] for place in plan]
        starts = [ids[positions[0]][:length] for length, positions in chosen]
        prefixes = pad(starts, positions=range(len(starts)), pad_id=pad_id)
        texts = [(row, place) for row, (_, positions) in enumerate(chosen) for place in positions]
        rests = [ids[place][chosen[row][0] :] for row, place in texts]
        num_keys = max(map(len, rests)) + prefixes.ids.shape[1]
        batches = micro_batches(
            rests,
            max_tokens=max(max_tokens - prefixes.ids.numel(), max_tokens // 2),
            max_texts=max(KEYS_PER_TOKEN * max_tokens // num_keys, 1),
            pad_id=pad_id,
            device=device,
        )
        ordered = [texts[place] for batch in batches for place in batch.positions]
        positions = [place for _, place in ordered]
        yield Reading(positions=positions, batches=batches, prefixes=prefixes, owners=[row for row, _ in ordered])


def common_prefixes(ids: Sequence[Sequence[int]]) -> list[tuple[int, list[int]]]:
    """Groups of texts whose common prefixes save the most tokens, as (length of the prefix, positions of the texts).

    Each group has at least two texts and ``MIN_PREFIX`` common tokens. At least one token of each text follows them.
    """
    order = sorted(range(len(ids)), key=lambda place: tuple(ids[place]))
    common = [_num_common(ids[one], ids[other]) for one, other in itertools.pairwise(order)]
    # best[n]: (tokens that the first n texts save, start of the last group, its prefix)
    best = [(0, 0, 0)]
    for end in range(1, len(order) + 1):
        choice = (best[-1][0], end - 1, 0)
        length = len(ids[order[end - 1]])
        for start in range(end - 2, -1, -1):
            length = min(length, common[start])
            if length < MIN_PREFIX:
                break
            choice = max(choice, (best[start][0] + length * (end - 1 - start), start, length))
        best.append(choice)
    groups, end = [], len(order)
    while end:
        _, start, length = best[end]
        if length:
            groups.append((length, order[start:end]))
        end = start
    return groups


def _num_common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common prefix, shorter than either text."""
    most = min(len(one), len(other)) - 1
    return next((place for place in range(most) if one[place] != other[place]), most)


class Prefixes:
    """Keys and values of prefixes under one encoder, for the texts after them."""

    def __init__(self, encoder: nn.Module, batch: MicroBatch) -> None:
        """Read the prefixes, which are on the encoder's device."""
        self._encoder, self._mask_PT = encoder, batch.mask
        self._cache = DynamicCache()
        output = encoder(
            input_ids=batch.ids, attention_mask=batch.mask, past_key_values=self._cache, use_cache=True
        )  # fmt: skip
        self._mean_PD = pooled(output.last_hidden_state, batch.mask, pooling="mean")

    def features(self, batch: MicroBatch, owner_B: Tensor, *, pooling: Pooling) -> Tensor:
        """Pooled states of whole texts, shape (B, D), from the tokens after their prefixes.

        Args:
            batch: the rest of each text.
            owner_B: the row of each text's prefix.
            pooling: ``last`` or ``mean``.
        """
        before_BT, num_before_B = self._mask_PT[owner_B], self._mask_PT.sum(dim=1)[owner_B]
        cache = DynamicCache()
        num_keys = int(before_BT.shape[1])
        cache.layers = [_AfterPrefix(layer, owner_B, num_keys) for layer in self._cache.layers]
        states_BTD = self._encoder(
            input_ids=batch.ids,
            attention_mask=torch.cat([before_BT, batch.mask], dim=1),
            position_ids=num_before_B[:, None] + torch.arange(batch.ids.shape[1], device=batch.ids.device),
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        features_BD = pooled(states_BTD, batch.mask, pooling=pooling)
        if pooling == "mean":
            share_B = num_before_B / (num_before_B + batch.mask.sum(dim=1))
            features_BD = features_BD.lerp(self._mean_PD[owner_B], share_B[:, None].to(features_BD.dtype))
        return features_BD


class _AfterPrefix(DynamicLayer):  # type: ignore[no-untyped-call]  # transformers' class hook is untyped
    """A layer's cache that copies the prefixes' keys and values for the texts while the layer runs, and keeps none."""

    def __init__(self, prefix: Any, owner_B: Tensor, num_keys: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._prefix, self._owner_B, self._num_keys = prefix, owner_B, num_keys

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Keys and values of the prefixes and of the texts."""
        keys, values = self._prefix.keys[self._owner_B], self._prefix.values[self._owner_B]
        return torch.cat([keys, key_states], dim=-2), torch.cat([values, value_states], dim=-2)

    def get_seq_length(self) -> int:
        """Number of tokens of the longest prefix, even if this layer did not read it (see ``Trunk``)."""
        return self._num_keys
