"""Trainable parameters of an adapter, counted without weights."""

import torch

from raydebm.scorer.model.backbone import encoder_on_meta
from raydebm.scorer.model.head import EnergyHead
from raydebm.scorer.model.lora import attach, lora_config


def adapter_size(adapter, config):
    """(parameters of the low-rank matrices, parameters of the head) on a backbone of this configuration."""
    encoder = encoder_on_meta(config)
    member = attach(encoder, lora_config(adapter, encoder))
    with torch.device("meta"):
        head = EnergyHead(int(config.hidden_size))
    low_rank = sum(parameter.numel() for name, parameter in member.named_parameters() if "lora_" in name)
    return low_rank, sum(parameter.numel() for parameter in head.parameters())
