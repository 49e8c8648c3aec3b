"""One trainable member: the frozen encoder with one adapter, and its energy head.

Shapes: B texts of a micro-batch, N texts of a step, T tokens, D hidden size.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from torch import Tensor, nn

from raydebm.config import AdapterConfig, Pooling
from raydebm.errors import CheckpointError, ConfigError
from raydebm.scorer.model.backbone import Backbone
from raydebm.scorer.model.batching import MicroBatch
from raydebm.scorer.model.dropout import use_byte_dropout
from raydebm.scorer.model.head import EnergyHead, check_pooling, pooled
from raydebm.scorer.model.lora import attach, lora_config
from raydebm.scorer.model.targets import target_modules

LORA, HEAD = "lora.", "head."
"""Prefixes of a member's trainable state."""
MIN_LENGTH = 16
"""Shortest context with room for problem and answer, in tokens; minimum of a recipe's max_length."""
ACTIVATIONS_PER_TOKEN = 24
"""Estimated activations per token and layer, in multiples of the hidden size; measured 15 to 26, by family and
targets."""


class EnsembleMember(nn.Module):
    """Energies of micro-batches, float32. The frozen encoder stays in eval mode, so its own dropout is off."""

    def __init__(
        self,
        backbone: Backbone,
        adapter: AdapterConfig,
        *,
        head_dropout: float,
        autocast: torch.dtype | None,
        pooling: Pooling = "cls",
    ) -> None:
        super().__init__()
        check_pooling(pooling, is_decoder=backbone.is_decoder, name=backbone.name)
        self.lora_config = lora_config(adapter, backbone.encoder)
        self.encoder: PeftModel = attach(backbone.encoder, self.lora_config)
        if backbone.device.type == "cpu":
            for dropouts in self._lora_dropouts():
                use_byte_dropout(dropouts)
        self.head = EnergyHead(backbone.hidden_size, dropout=head_dropout).to(backbone.device)
        self._autocast = autocast
        self._pooling: Pooling = pooling
        self.device = backbone.device
        self._encoder_config = backbone.encoder.config

    def train(self, mode: bool = True) -> "EnsembleMember":
        """Turn dropout of the adapter and the head on or off."""
        super().train(mode)
        self.encoder.eval()
        for dropouts in self._lora_dropouts():
            dropouts.train(mode)
        return self

    def _lora_dropouts(self) -> list[nn.ModuleDict]:
        return [
            module
            for name, module in self.encoder.named_modules()
            if name.endswith("lora_dropout") and isinstance(module, nn.ModuleDict)
        ]

    def forward(self, batch: MicroBatch) -> Tensor:
        """Energies, shape (B,)."""
        energies_B: Tensor = self.head(self.features(batch))
        return energies_B

    def features(self, batch: MicroBatch) -> Tensor:
        """Inputs of the head, shape (B, D)."""
        with self._precision():
            output = self.encoder(input_ids=batch.ids, attention_mask=batch.mask)
        return pooled(output.last_hidden_state, batch.mask, pooling=self._pooling)

    def graph_bytes(self, batches: Sequence[MicroBatch]) -> float:
        """Estimated memory of the autograd graphs of these micro-batches, in bytes."""
        config = self._encoder_config
        per_token = ACTIVATIONS_PER_TOKEN * config.hidden_size
        # Eager attention (DeBERTa) keeps its scores, a T x T matrix per head.
        per_position = 4 * config.num_attention_heads if config._attn_implementation == "eager" else 0
        numbers = sum(batch.ids.numel() * (per_token + per_position * batch.ids.shape[1]) for batch in batches)
        return float(numbers * config.num_hidden_layers * (4 if self._autocast is None else 3))

    def trainable(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Names and parameters that are trained, in a fixed order."""
        return ((name, parameter) for name, parameter in self.named_parameters() if parameter.requires_grad)

    def trainable_state(self) -> dict[str, Tensor]:
        """Copies of the weights: the adapter's under ``lora.`` + PEFT's key, the head's under ``head.`` + its key."""
        lora = get_peft_model_state_dict(self.encoder, save_embedding_layers=False)
        state = {LORA + key: tensor for key, tensor in lora.items()}
        state |= {HEAD + key: tensor for key, tensor in self.head.state_dict().items()}
        return {key: tensor.detach().cpu().clone() for key, tensor in state.items()}

    def load_trainable_state(self, state: dict[str, Tensor]) -> None:
        """Load trainable weights.

        Raises:
            CheckpointError: the state belongs to another adapter or head.
        """
        try:
            outcome: Any = set_peft_model_state_dict(self.encoder, under_prefix(state, LORA))
            self.head.load_state_dict(under_prefix(state, HEAD))
        except (RuntimeError, KeyError) as error:
            raise CheckpointError(f"the saved weights do not belong to this adapter: {error}") from error
        missing = [key for key in outcome.missing_keys if "lora_" in key]
        if missing or outcome.unexpected_keys:
            raise CheckpointError(
                f"the saved weights do not belong to this adapter: missing {missing[:1]}, "
                f"unexpected {outcome.unexpected_keys[:1]}"
            )

    def _precision(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, dtype=self._autocast, enabled=self._autocast is not None)


def check_member(adapter: AdapterConfig, backbone: Backbone, *, pooling: Pooling, max_length: int) -> None:
    """Check that an adapter can be trained on a backbone.

    Args:
        adapter: settings of the adapter.
        backbone: the adapter's own backbone, or the scorer's.
        pooling: the adapter's own pooling, or the scorer's.
        max_length: the adapter's own context in tokens, or the scorer's. The backbone's may be shorter.

    Raises:
        ConfigError: the backbone lacks a target or a layer, does not fit the pooling, or its context is too short. The
            message names adapter and backbone.
    """
    try:
        check_pooling(pooling, is_decoder=backbone.is_decoder, name=backbone.name)
    except ConfigError as error:
        raise ConfigError(f"adapter {adapter.name!r}: {error}") from error
    try:
        target_modules(adapter, backbone.encoder)
    except ConfigError as error:
        raise ConfigError(f"backbone {backbone.name!r}: {error}") from error
    if min(max_length, backbone.context) < MIN_LENGTH:
        raise ConfigError(
            f"adapter {adapter.name!r}: backbone {backbone.name!r} reads {backbone.context} tokens and max_length is "
            f"{max_length}; a problem with an answer needs at least {MIN_LENGTH}: name a backbone with a longer "
            "context, or raise max_length"
        )


def under_prefix(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The entries with this prefix, by names without it."""
    return {key.removeprefix(prefix): tensor for key, tensor in state.items() if key.startswith(prefix)}


def gather(energies: Sequence[Tensor], batches: Sequence[MicroBatch]) -> Tensor:
    """Energies of micro-batches in the order of the step's texts, shape (N,)."""
    positions = torch.tensor([position for batch in batches for position in batch.positions])
    joined = torch.cat(list(energies))
    return joined[torch.argsort(positions).to(joined.device)]
