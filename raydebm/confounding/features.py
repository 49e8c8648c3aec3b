"""What the energy heads see: the state of [CLS] (or the mean of the states) after each adapted encoder.

In:   a checkpoint folder, or its parts; (problem, candidate) texts.
Out:  per adapter one feature vector a text, and the energies that a head makes of them.
Does not know: labels, generators, Ray.

Shapes: K adapters, N texts, D hidden size.
"""

from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raydebm.errors import CheckpointError
from raydebm.scorer.checkpoint import StoredAdapter, read_ensemble
from raydebm.scorer.checkpoint_records import EnsembleRecord
from raydebm.scorer.ensemble import EnsembleScorer, MemberReader, MergedEngine, head_of
from raydebm.scorer.member_groups import MemberGroup, group_members, load_backbones
from raydebm.scorer.model.backbone import Backbone
from raydebm.scorer.model.head import EnergyHead


class FeatureExtractor:
    """Features of texts, as the heads of a checkpoint get them. Each distinct text is read once, by the engine that
    scoring uses, and its features are kept: for heads that are trained again, for scorers whose heads alone differ, and
    for probes.

    Memory: 4 * K * D bytes per distinct text (20 KB with five adapters and 1,024 dimensions), and 4 bytes per token.
    """

    def __init__(
        self,
        record: EnsembleRecord,
        adapters: Sequence[StoredAdapter],
        *,
        folder: Path,
        backbones: Sequence[Backbone],
        micro_batch_tokens: int = 8192,
    ) -> None:
        """
        Args:
            folder: where the checkpoint is.
            backbones: those of the adapters, in any order.

        Raises:
            CheckpointError: an adapter was trained on another backbone.
        """
        self.folder = folder
        self.dtype = backbones[0].dtype
        self.record = record
        self.adapters = tuple(adapters)
        self._of_groups = [
            _GroupFeatures(group, micro_batch_tokens=micro_batch_tokens)
            for group in group_members(record, adapters, backbones)
        ]

    @classmethod
    def load(
        cls, folder: str | Path, *, device: str = "auto", dtype: str = "auto", micro_batch_tokens: int = 8192
    ) -> "FeatureExtractor":
        """Raises CheckpointError when parts are missing or torn, or were trained on another backbone."""
        record, adapters = read_ensemble(Path(folder))
        backbones = load_backbones(record, device=device, dtype=dtype)
        return cls(record, adapters, folder=Path(folder), backbones=backbones, micro_batch_tokens=micro_batch_tokens)

    @property
    def num_backbone_parameters(self) -> int:
        """Parameters of the encoders, without adapters and heads, each counted once per adapter."""
        groups = [features.group for features in self._of_groups]
        return sum(
            len(group.adapters) * sum(parameter.numel() for parameter in group.backbone.encoder.parameters())
            for group in groups
        )

    def states(self, texts: Sequence[tuple[str, str]]) -> list[Tensor]:
        """What the head of each adapter reads, in the checkpoint's order: shape (N, D) each, float32, on the CPU, for
        N >= 1 texts in the order given."""
        by_position: dict[int, Tensor] = {}
        for features in self._of_groups:
            by_position |= zip(features.group.positions, features.of_texts(texts).unbind(1), strict=True)
        return [by_position[position] for position in range(len(self.adapters))]

    def has(self, texts: Sequence[tuple[str, str]]) -> list[bool]:
        """Whether the features of each text are kept, in order."""
        return [all(known) for known in zip(*(features.has(texts) for features in self._of_groups), strict=True)]

    def joined(self, texts: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """All adapters' features side by side, shape (N, K * D): what the ensemble as a whole sees. Of several
        backbones first those of the first one's adapters, each as wide as its backbone."""
        joined: NDArray[np.float32] = torch.cat(
            [features.of_texts(texts).flatten(1) for features in self._of_groups], dim=1
        ).numpy()
        return joined

    def scorer(self, folder: str | Path) -> EnsembleScorer:
        """The energies of a checkpoint that differs from the extractor's in its heads at most.

        Raises:
            CheckpointError: parts are missing or torn, or its adapters or backbone are others.
        """
        record, adapters = read_ensemble(Path(folder))
        if _without_heads(record, adapters) != _without_heads(self.record, self.adapters):
            raise CheckpointError(f"{folder}: its adapters are not those whose features are kept; score it by itself")
        return EnsembleScorer(record=record, readers=[features.reader(adapters) for features in self._of_groups])


class _GroupFeatures:
    """The features of one backbone's adapters."""

    def __init__(self, group: MemberGroup, *, micro_batch_tokens: int) -> None:
        self.group = group
        self._engine = MergedEngine(group.backbone, group.adapters, micro_batch_tokens=micro_batch_tokens)
        self._known: dict[bytes, Tensor] = {}

    def reader(self, adapters: Sequence[StoredAdapter]) -> MemberReader:
        """Energies by the heads of these adapters, which are all of the ensemble."""
        group = self.group
        heads = [head_of(adapters[place], hidden_size=group.backbone.hidden_size) for place in group.positions]
        return MemberReader(encoder=group.encoder, engine=_HeadsEngine(self, heads), positions=group.positions)

    def has(self, texts: Sequence[tuple[str, str]]) -> list[bool]:
        """Whether the features of each text are kept, in order."""
        return [_key(text.ids) in self._known for text in self.group.encoder(texts)]

    def of_texts(self, texts: Sequence[tuple[str, str]]) -> Tensor:
        """Features, shape (N, K, D), float32, on the CPU, of N >= 1 texts in the order given."""
        return self.of_ids([text.ids for text in self.group.encoder(texts)])

    def of_ids(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Likewise of token ids."""
        by_key = {_key(text): text for text in ids}
        missing = {key: text for key, text in by_key.items() if key not in self._known}
        if missing:
            features_KND = self._engine.features(list(missing.values()), range(len(self.group.adapters)))
            self._known |= zip(missing, features_KND.unbind(1), strict=True)
        return torch.stack([self._known[_key(text)] for text in ids])


def _key(ids: Sequence[int]) -> bytes:
    """Four bytes per token, where a tuple takes 36."""
    return array("i", ids).tobytes()


class _HeadsEngine:
    """An ``EnergyEngine`` that encodes no text twice."""

    def __init__(self, features: _GroupFeatures, heads: Sequence[EnergyHead]) -> None:
        self._features, self._heads = features, heads

    @torch.inference_mode()
    def energies(self, ids: Sequence[Sequence[int]], members: Sequence[int]) -> Tensor:
        of_adapters = self._features.of_ids(ids).unbind(1)
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
