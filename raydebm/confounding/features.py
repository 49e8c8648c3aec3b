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
from raydebm.scorer.ensemble import EnsembleScorer
from raydebm.scorer.model.backbone import Backbone, load_backbone
from raydebm.scorer.model.batching import TextEncoder, micro_batches
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
        backbone: Backbone,
        micro_batch_tokens: int = 8192,
    ) -> None:
        """
        Raises:
            CheckpointError: the adapters were trained on another backbone.
        """
        if backbone.fingerprint != record.backbone_fingerprint:
            raise CheckpointError(
                f"the checkpoint was trained on backbone {record.backbone!r} with weights "
                f"{record.backbone_fingerprint}, but {backbone.name!r} has weights {backbone.fingerprint}"
            )
        self.record = record
        self.adapters = tuple(adapters)
        self._backbone = backbone
        self._micro_batch_tokens = micro_batch_tokens
        self.encoder = TextEncoder(backbone.tokenizer, max_length=record.max_length, is_decoder=backbone.is_decoder)

    @classmethod
    def load(
        cls, folder: str | Path, *, device: str = "auto", dtype: str = "auto", micro_batch_tokens: int = 8192
    ) -> "FeatureExtractor":
        """Raises CheckpointError when parts are missing or torn, or were trained on another backbone."""
        record, adapters = read_ensemble(Path(folder))
        backbone = load_backbone(record.backbone, device=device, dtype=dtype)
        return cls(record, adapters, backbone=backbone, micro_batch_tokens=micro_batch_tokens)

    @property
    def hidden_size(self) -> int:
        """Width of a feature vector."""
        return self._backbone.hidden_size

    @property
    def num_backbone_parameters(self) -> int:
        """Parameters of the encoder, without adapters and heads."""
        return sum(parameter.numel() for parameter in self._backbone.encoder.parameters())

    def stream(self, texts: Sequence[tuple[str, str]]) -> Iterator[AdapterFeatures]:
        """Adapter by adapter, in the checkpoint's order: the features of all texts."""
        ids = [text.ids for text in self.encoder(texts)]
        for adapter in self.adapters:
            yield AdapterFeatures(adapter=adapter.record.adapter.name, states=self.states(adapter, ids))

    @torch.no_grad()
    def states(self, adapter: StoredAdapter, ids: Sequence[Sequence[int]]) -> Tensor:
        """Features of token ids under one adapter, shape (N, D), float32, on the CPU."""
        where = f"adapter {adapter.record.adapter.name!r}"
        updates = low_rank_updates(adapter.lora, adapter.peft_config, where=where)
        encoder = merged_copy(self._backbone.encoder, updates, where=where)
        found = torch.empty(len(ids), self._backbone.hidden_size)
        pad_id = int(self._backbone.tokenizer.pad_token_id)
        for batch in micro_batches(ids, max_tokens=self._micro_batch_tokens, pad_id=pad_id):
            moved = batch.to(self._backbone.device)
            states_BTD = encoder(input_ids=moved.ids, attention_mask=moved.mask).last_hidden_state
            features_BD = pooled(states_BTD, moved.mask, pooling=self.record.pooling)
            found[list(batch.positions)] = features_BD.float().cpu()
        return found


class KeptFeatures:
    """Features of texts, each made once and kept: for scorers whose heads alone differ, and for probes.

    Memory: 4 * K * D bytes a distinct text (20 KB with five adapters and 1,024 dimensions).
    """

    def __init__(self, extractor: FeatureExtractor) -> None:
        self._extractor = extractor
        self._known: dict[tuple[int, ...], Tensor] = {}

    def scorer(self, folder: str | Path) -> EnsembleScorer:
        """The energies of a checkpoint that differs from the extractor's in its heads at most.

        Raises:
            CheckpointError: parts are missing or torn, or its adapters or backbone are others.
        """
        record, adapters = read_ensemble(Path(folder))
        if _without_heads(record, adapters) != _without_heads(self._extractor.record, self._extractor.adapters):
            raise CheckpointError(f"{folder}: its adapters are not those whose features are kept; score it by itself")
        heads = [head_of(adapter, hidden_size=self._extractor.hidden_size) for adapter in adapters]
        return EnsembleScorer(record=record, encoder=self._extractor.encoder, engine=_HeadsEngine(self, heads))

    def joined(self, texts: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """All adapters' features side by side, shape (N, K * D): what the ensemble as a whole sees."""
        joined: NDArray[np.float32] = (
            self.states([text.ids for text in self._extractor.encoder(texts)]).flatten(1).numpy()
        )
        return joined

    def states(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Features, shape (N, K, D), float32, on the CPU, of N >= 1 texts in the order given."""
        keys = [tuple(text) for text in ids]
        missing = [key for key in dict.fromkeys(keys) if key not in self._known]
        if missing:
            of_adapters = [self._extractor.states(adapter, missing) for adapter in self._extractor.adapters]
            self._known |= zip(missing, torch.stack(of_adapters, dim=1), strict=True)
        return torch.stack([self._known[key] for key in keys])


class _HeadsEngine:
    """An ``EnergyEngine`` that encodes no text twice."""

    def __init__(self, features: KeptFeatures, heads: Sequence[EnergyHead]) -> None:
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
    return record.backbone_fingerprint, record.pooling, record.max_length, configs, weights


def head_of(adapter: StoredAdapter, *, hidden_size: int, dropout: float = 0.2) -> EnergyHead:
    """The adapter's energy head, in eval mode.

    Raises:
        CheckpointError: the stored weights are not of such a head.
    """
    head = EnergyHead(hidden_size, dropout=dropout)
    try:
        head.load_state_dict(dict(adapter.head))
    except RuntimeError as error:
        raise CheckpointError(f"adapter {adapter.record.adapter.name!r}: its head does not fit: {error}") from error
    return head.eval()
