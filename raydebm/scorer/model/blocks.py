"""The module tree of an encoder: its repeated blocks in any family, and copies of its structure."""

import copy
from typing import Any

from torch import nn

from raydebm.errors import ConfigError


def block_list(encoder: nn.Module) -> tuple[str, nn.ModuleList]:
    """Name and list of the encoder's blocks, lowest first: ``encoder.layer`` of BERT, ``layers`` of ModernBERT.

    Raises:
        ConfigError: no list of modules has as many entries as the config has layers.
    """
    config: Any = encoder.config
    for name, module in encoder.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == config.num_hidden_layers:
            return name, module
    raise ConfigError(f"a backbone of type {config.model_type!r} has no list of {config.num_hidden_layers} blocks")


def with_blocks(encoder: nn.Module, blocks: nn.ModuleList) -> None:
    """Replace the encoder's list of blocks in place."""
    name, _ = block_list(encoder)
    parent, _, own_name = name.rpartition(".")
    setattr(encoder.get_submodule(parent), own_name, blocks)


def structure_copy(encoder: nn.Module) -> Any:
    """New modules over the same parameters and buffers, so that adapters never change the backbone itself."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*encoder.parameters(), *encoder.buffers())}
    return copy.deepcopy(encoder, memo=shared)


def num_positions(encoder: nn.Module) -> int | None:
    """Number of positions for tokens; None if the config states no limit.

    RoBERTa and its relatives count positions from the one after the padding index of the position embeddings.
    """
    config: Any = encoder.config
    stated: int | None = getattr(config, "max_position_embeddings", None)
    if stated is None or stated <= 0:  # XLNet says -1
        return None
    tables = [module for name, module in encoder.named_modules() if name.endswith("position_embeddings")]
    paddings = [table.padding_idx for table in tables if isinstance(table, nn.Embedding)]
    return stated - max((padding + 1 for padding in paddings if padding is not None), default=0)
