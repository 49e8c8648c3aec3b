"""Low-rank adapters: their modules around a backbone, and merging their weights into it.

PEFT makes the trainable modules and defines the file layout. For scoring, weights are merged here, by a product and a
sum.
``targets`` chooses the adapted layers.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor, nn

from raydebm.config import AdapterConfig
from raydebm.errors import CheckpointError
from raydebm.scorer.model.blocks import structure_copy
from raydebm.scorer.model.targets import target_modules

PEFT_PREFIX = "base_model.model."


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRank:
    """The update of one linear layer: W + scale * up @ down."""

    down: Tensor
    """LoRA A, shape (rank, in)."""
    up: Tensor
    """LoRA B, shape (out, rank)."""
    scale: float
    """alpha / rank."""


def lora_config(adapter: AdapterConfig, encoder: nn.Module) -> LoraConfig:
    """PEFT's config of an adapter.

    Raises:
        ConfigError: a target is not a layer of the encoder.
    """
    return LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        lora_dropout=adapter.dropout,
        target_modules=list(target_modules(adapter, encoder)),
        bias="none",
    )


def plain_config(config: LoraConfig, *, backbone: str) -> dict[str, Any]:
    """PEFT's config as JSON values, as in adapter_config.json; ``backbone`` is the recipe's name, not a local path."""
    plain: Any = config
    values: dict[str, Any] = plain.to_dict()
    return values | {"target_modules": sorted(config.target_modules or ()), "base_model_name_or_path": backbone}


def attach(encoder: nn.Module, config: LoraConfig) -> PeftModel:
    """Wrap the encoder's own parameters in new adapter modules; the given encoder is not changed."""
    with warnings.catch_warnings():
        # PEFT asks the encoder for an attribute that transformers has renamed.
        warnings.simplefilter("ignore", FutureWarning)
        model = get_peft_model(structure_copy(encoder), config)
    return cast("PeftModel", model)


def low_rank_updates(state: Mapping[str, Tensor], peft_config: Mapping[str, Any], *, where: str) -> dict[str, LowRank]:
    """Updates by module name, from the contents of a PEFT adapter folder.

    Raises:
        CheckpointError: the adapter is a variant of LoRA whose merge is not W + alpha/r * B A, or one half is missing.
    """
    for variant in ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern", "modules_to_save"):
        if peft_config.get(variant):
            raise CheckpointError(f"{where}: {variant}={peft_config[variant]!r} is not supported; use plain LoRA")
    scale = float(peft_config["lora_alpha"]) / int(peft_config["r"])
    updates = {}
    for key, down in state.items():
        module, separator, _ = key.partition(".lora_A.")
        if not separator:
            continue
        up = state.get(f"{module}.lora_B.weight")
        if up is None:
            raise CheckpointError(f"{where}: {module}.lora_B.weight is missing; the file is incomplete; train again")
        updates[module.removeprefix(PEFT_PREFIX)] = LowRank(down=down.float(), up=up.float(), scale=scale)
    if not updates:
        raise CheckpointError(f"{where}: the file has no LoRA weights; train again")
    return updates


def merged_copy(encoder: nn.Module, updates: Mapping[str, LowRank], *, where: str) -> nn.Module:
    """The encoder with the updates merged in: copies of the adapted matrices, everything else shared.

    Raises:
        CheckpointError: an update names a module that the backbone lacks, or has another shape.
    """
    merged: nn.Module = structure_copy(encoder)
    modules = dict(merged.named_modules())
    for name, update in updates.items():
        module = modules.get(name)
        expected = (update.up.shape[0], update.down.shape[1])
        if not isinstance(module, nn.Linear) or tuple(module.weight.shape) != expected:
            actual = tuple(module.weight.shape) if isinstance(module, nn.Linear) else "nothing"
            raise CheckpointError(
                f"{where}: it adapts {name!r} of shape {expected}, the backbone has {actual} there; "
                "use the backbone it was trained on"
            )
        weight = module.weight
        # In float32 even for a bfloat16 backbone: rounding the sum once loses less than rounding the product.
        delta = update.scale * (update.up.to(weight.device) @ update.down.to(weight.device))
        module.weight = nn.Parameter((weight.float() + delta).to(weight.dtype), requires_grad=False)
    return merged
