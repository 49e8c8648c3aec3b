"""What the energy heads see: the state of [CLS] (or the mean of the states) after each adapted encoder.

In:   a checkpoint folder, or its parts; (problem, candidate) texts.
Out:  per adapter one feature vector a text, and the energies that a head makes of them.
Does not know: labels, generators, Ray.

Shapes: K adapters, N texts, D hidden size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raydebm.errors import CheckpointError
from raydebm.scorer.checkpoint import StoredAdapter, read_ensemble
from raydebm.scorer.checkpoint_records import EnsembleRecord
from raydebm.scorer.ensemble import EnsembleScorer, MemberReader, head_of
from raydebm.scorer.member_groups import MemberGroup, group_members, load_backbones
from raydebm.scorer.model.backbone import Backbone
from raydebm.scorer.model.batching import micro_batches
from raydebm.scorer.model.head import EnergyHead
from raydebm.scorer.model.lora import low_rank_updates, merged_copy
from raydebm.scorer.model.pooling import pooled


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdapterFeatures:
    """One adapter's view of N texts."""

    adapter: str
    states: Tensor
    """Shape (N, D), float32, on the CPU."""


class FeatureExtractor:
    """Features of texts, as a head gets them, under each adapter of a checkpoint.

    One adapter's encoder is merged at a time.
    """

    def __init__(
        self,
        record: EnsembleRecord,
        adapters: Sequence[StoredAdapter],
        *,
        backbones: Sequence[Backbone],
        micro_batch_tokens: int = 8192,
    ) -> None:
        """
        Args:
            backbones: those of the adapters, in any order.

        Raises:
            CheckpointError: an adapter was trained on another backbone.
        """
        self.record = record
        self.adapters = tuple(adapters)
        self.groups = tuple(group_members(record, adapters, backbones))
        self._micro_batch_tokens = micro_batch_tokens

    @classmethod
    def load(
        cls, folder: str | Path, *, device: str = "auto", dtype: str = "auto", micro_batch_tokens: int = 8192
    ) -> "FeatureExtractor":
        """Raises CheckpointError when parts are missing or torn, or were trained on another backbone."""
        record, adapters = read_ensemble(Path(folder))
        backbones = load_backbones(record, device=device, dtype=dtype)
        return cls(record, adapters, backbones=backbones, micro_batch_tokens=micro_batch_tokens)

    @property
    def num_backbone_parameters(self) -> int:
        """Parameters of the encoders, without adapters and heads, each counted once per adapter."""
        return sum(
            len(group.adapters) * sum(parameter.numel() for parameter in group.backbone.encoder.parameters())
            for group in self.groups
        )

    def stream(self, texts: Sequence[tuple[str, str]]) -> Iterator[AdapterFeatures]:
        """Adapter by adapter, in the checkpoint's order: the features of all texts."""
        ids = [[text.ids for text in group.encoder(texts)] for group in self.groups]
        for position, adapter in enumerate(self.adapters):
            place = next(place for place, group in enumerate(self.groups) if position in group.positions)
            states = self.states(adapter, ids[place], backbone=self.groups[place].backbone)
            yield AdapterFeatures(adapter=adapter.record.adapter.name, states=states)

    @torch.no_grad()
    def states(self, adapter: StoredAdapter, ids: Sequence[Sequence[int]], *, backbone: Backbone) -> Tensor:
        """Features of token ids under one adapter of a backbone, shape (N, D), float32, on the CPU."""
        where = f"adapter {adapter.record.adapter.name!r}"
        updates = low_rank_updates(adapter.lora, adapter.peft_config, where=where)
        encoder = merged_copy(backbone.encoder, updates, where=where)
        features_ND = torch.empty(len(ids), backbone.hidden_size)
        pad_id = int(backbone.tokenizer.pad_token_id)
        for batch in micro_batches(ids, max_tokens=self._micro_batch_tokens, pad_id=pad_id):
            moved = batch.to(backbone.device)
            states_BTD = encoder(input_ids=moved.ids, attention_mask=moved.mask).last_hidden_state
            features_BD = pooled(states_BTD, moved.mask, pooling=adapter.record.pooling)
            features_ND[list(batch.positions)] = features_BD.float().cpu()
        return features_ND


class KeptFeatures:
    """Features of texts, each made once and kept: for scorers whose heads alone differ, and for probes.

    Memory: 4 * K * D bytes a distinct text (20 KB with five adapters and 1,024 dimensions).
    """

    def __init__(self, extractor: FeatureExtractor) -> None:
        self._extractor = extractor
        self._of_groups = [_GroupFeatures(extractor, group) for group in extractor.groups]

    def scorer(self, folder: str | Path) -> EnsembleScorer:
        """The energies of a checkpoint that differs from the extractor's in its heads at most.

        Raises:
            CheckpointError: parts are missing or torn, or its adapters or backbone are others.
        """
        record, adapters = read_ensemble(Path(folder))
        if _without_heads(record, adapters) != _without_heads(self._extractor.record, self._extractor.adapters):
            raise CheckpointError(f"{folder}: its adapters are not those whose features are kept; score it by itself")
        return EnsembleScorer(record=record, readers=[features.reader(adapters) for features in self._of_groups])

    def joined(self, texts: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """All adapters' features side by side, shape (N, K * D): what the ensemble as a whole sees. Of several
        backbones first those of the first one's adapters, each as wide as its backbone."""
        of_groups = [
            features.states([text.ids for text in features.group.encoder(texts)]).flatten(1)
            for features in self._of_groups
        ]
        joined: NDArray[np.float32] = torch.cat(of_groups, dim=1).numpy()
        return joined


class _GroupFeatures:
    """The features of one backbone's adapters."""

    def __init__(self, extractor: FeatureExtractor, group: MemberGroup) -> None:
        self.group = group
        self._extractor = extractor
        self._known: dict[tuple[int, ...], Tensor] = {}

    def reader(self, adapters: Sequence[StoredAdapter]) -> MemberReader:
        """Energies by the heads of these adapters, which are all of the ensemble."""
        group = self.group
        heads = [head_of(adapters[place], hidden_size=group.backbone.hidden_size) for place in group.positions]
        return MemberReader(encoder=group.encoder, engine=_HeadsEngine(self, heads), positions=group.positions)

    def states(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Features, shape (N, K, D), float32, on the CPU, of N >= 1 texts in the order given."""
        keys = [tuple(text) for text in ids]
        missing = [key for key in dict.fromkeys(keys) if key not in self._known]
        if missing:
            extractor, group = self._extractor, self.group
            of_adapters = [extractor.states(adapter, missing, backbone=group.backbone) for adapter in group.adapters]
            self._known |= zip(missing, torch.stack(of_adapters, dim=1), strict=True)
        return torch.stack([self._known[key] for key in keys])


class _HeadsEngine:
    """An ``EnergyEngine`` that encodes no text twice."""

    def __init__(self, features: _GroupFeatures, heads: Sequence[EnergyHead]) -> None:
        self._features, self._heads = features, heads

    @torch.inference_mode()
    def energies(self, ids: Sequence[Sequence[int]], members: Sequence[int]) -> Tensor:
        of_adapters = self._features.states(ids).unbind(1)
        return torch.stack([self._heads[index](of_adapters[index]) for index in members])


def _without_heads(record: EnsembleRecord, adapters: Sequence[StoredAdapter]) -> tuple[object, ...]:
    """Equal for checkpoints that make the same features."""
    weights = [
        {key: tensor.view(torch.uint8).numpy().tobytes() for key, tensor in adapter.lora.items()}
        for adapter in adapters
    ]
    configs = [dict(adapter.peft_config) for adapter in adapters]
    readings = [(member.backbone_fingerprint, member.pooling, member.max_length) for member in record.members]
    return readings, configs, weights
