"""Features of the energy heads: the state of [CLS] (or the mean of the states) after each adapted encoder.

In:   a checkpoint folder, or its parts; (problem, candidate) texts.
Out:  one feature vector per adapter and text, and a head's energies for them.
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
from raydebm.scorer.ensemble import EnsembleScorer, MergedEngine, backbone_for, head_of, text_encoder
from raydebm.scorer.model.backbone import Backbone
from raydebm.scorer.model.head import EnergyHead


class FeatureExtractor:
    """Features of texts, as inputs of a checkpoint's heads.

    Each distinct text is encoded once, by the scoring engine, and its features are cached for retrained heads, for
    scorers that differ only in their heads, and for probes.

    Memory: 4 * K * D bytes per distinct text (20 KB with five adapters and 1,024 dimensions), and 4 bytes per token.
    """

    def __init__(
        self,
        record: EnsembleRecord,
        adapters: Sequence[StoredAdapter],
        *,
        folder: Path,
        backbone: Backbone,
        micro_batch_tokens: int = 8192,
    ) -> None:
        """Merge the adapters into the backbone.

        Args:
            folder: Folder of the checkpoint.
            backbone: Backbone of the adapters.

        Raises:
            CheckpointError: the adapters were trained on another backbone.
        """
        self.folder = folder
        self.dtype = backbone.dtype
        self.record = record
        self.adapters = tuple(adapters)
        self._backbone = backbone
        self._encoder = text_encoder(record, backbone)
        self._engine = MergedEngine(backbone, adapters, micro_batch_tokens=micro_batch_tokens)
        self._known: dict[bytes, Tensor] = {}

    @classmethod
    def load(
        cls, folder: str | Path, *, device: str = "auto", dtype: str = "auto", micro_batch_tokens: int = 8192
    ) -> "FeatureExtractor":
        """Load a checkpoint. Raises CheckpointError if parts are missing or torn, or were trained on another
        backbone."""
        record, adapters = read_ensemble(Path(folder))
        backbone = backbone_for(record, device=device, dtype=dtype)
        return cls(record, adapters, folder=Path(folder), backbone=backbone, micro_batch_tokens=micro_batch_tokens)

    @property
    def num_backbone_parameters(self) -> int:
        """Number of encoder parameters, without adapters and heads, counted once per adapter."""
        return len(self.adapters) * sum(parameter.numel() for parameter in self._backbone.encoder.parameters())

    def states(self, texts: Sequence[tuple[str, str]]) -> list[Tensor]:
        """Inputs of each adapter's head, in the checkpoint's order: shape (N, D) each, float32, on the CPU, for N >= 1
        texts in order."""
        return list(self._of_texts(texts).unbind(1))

    def has(self, texts: Sequence[tuple[str, str]]) -> list[bool]:
        """Whether the features of each text are cached, in order."""
        return [_key(text.ids) in self._known for text in self._encoder(texts)]

    def joined(self, texts: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Features of all adapters side by side, shape (N, K * D)."""
        joined: NDArray[np.float32] = self._of_texts(texts).flatten(1).numpy()
        return joined

    def scorer(self, folder: str | Path) -> EnsembleScorer:
        """Scorer of a checkpoint that differs from the extractor's at most in its heads.

        Raises:
            CheckpointError: parts are missing or torn, or adapters or backbone differ.
        """
        record, adapters = read_ensemble(Path(folder))
        if _without_heads(record, adapters) != _without_heads(self.record, self.adapters):
            raise CheckpointError(f"{folder}: its adapters are not those whose features are kept; score it by itself")
        heads = [head_of(adapter, hidden_size=self._backbone.hidden_size) for adapter in adapters]
        return EnsembleScorer(record=record, encoder=self._encoder, engine=_HeadsEngine(self, heads))

    def _of_texts(self, texts: Sequence[tuple[str, str]]) -> Tensor:
        return self.of_ids([text.ids for text in self._encoder(texts)])

    def of_ids(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Features of token ids, shape (N, K, D), float32, on the CPU, for N >= 1 texts in order."""
        by_key = {_key(text): text for text in ids}
        missing = {key: text for key, text in by_key.items() if key not in self._known}
        if missing:
            features_KND = self._engine.features(list(missing.values()), range(len(self.adapters)))
            self._known |= zip(missing, features_KND.unbind(1), strict=True)
        return torch.stack([self._known[_key(text)] for text in ids])


def _key(ids: Sequence[int]) -> bytes:
    """Cache key with four bytes per token, where a tuple has 36."""
    return array("i", ids).tobytes()


class _HeadsEngine:
    """``EnergyEngine`` with cached features."""

    def __init__(self, features: FeatureExtractor, heads: Sequence[EnergyHead]) -> None:
        self._features, self._heads = features, heads

    @torch.inference_mode()
    def energies(self, ids: Sequence[Sequence[int]], members: Sequence[int]) -> Tensor:
        of_adapters = self._features.of_ids(ids).unbind(1)
        return torch.stack([self._heads[index](of_adapters[index]) for index in members])


def _without_heads(record: EnsembleRecord, adapters: Sequence[StoredAdapter]) -> tuple[object, ...]:
    """Value that is equal for checkpoints with the same features."""
    weights = [
        {key: tensor.view(torch.uint8).numpy().tobytes() for key, tensor in adapter.lora.items()}
        for adapter in adapters
    ]
    configs = [dict(adapter.peft_config) for adapter in adapters]
    return record.backbone_fingerprint, record.pooling, record.max_length, configs, weights
