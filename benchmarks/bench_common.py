"""Shared parts of the scorer benchmarks: interleaved timing, random texts of realistic lengths, a plain PEFT model."""

import platform
import random
import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import torch
from peft import PeftModel, get_peft_model
from transformers import ModernBertConfig, ModernBertModel
from transformers.utils import logging as transformers_logging

from raydebm.config import AdapterConfig
from raydebm.scorer.model.backbone import Backbone, load_backbone, make_backbone
from raydebm.scorer.model.blocks import structure_copy
from raydebm.scorer.model.lora import lora_config


class SpecialIds:
    """A replacement for the tokenizer. Random texts need only its special token ids."""

    def __init__(self, config: ModernBertConfig) -> None:
        self.cls_token_id, self.sep_token_id = config.cls_token_id, config.sep_token_id
        self.pad_token_id = config.pad_token_id


def backbone_of(name: str) -> Backbone:
    """A backbone by name; ``modernbert-base`` is ModernBERT-base's architecture with random weights."""
    if name != "modernbert-base":
        return load_backbone(name, device="cpu", dtype="float32")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = ModernBertModel(ModernBertConfig())
    return make_backbone(encoder, SpecialIds(encoder.config), name=name, fingerprint="random")


def pool_ids(backbone: Backbone, *, num_texts: int, seed: int) -> list[tuple[int, ...]]:
    """Token ids of one problem's candidates, each with the problem: 100 to 400 tokens, as in GSM8K."""
    rng = random.Random(seed)
    vocabulary = int(backbone.encoder.config.vocab_size)
    cls, sep = backbone.tokenizer.cls_token_id, backbone.tokenizer.sep_token_id
    problem = [rng.randrange(vocabulary // 10, vocabulary * 9 // 10) for _ in range(rng.randint(60, 120))]
    texts = []
    for _ in range(num_texts):
        length = max(100, min(400, len(problem) + round(rng.lognormvariate(4.75, 0.45))))
        candidate = [rng.randrange(vocabulary // 10, vocabulary * 9 // 10) for _ in range(length - len(problem))]
        texts.append((cls, *problem, sep, *candidate, sep))
    return texts


def peft_model(backbone: Backbone, adapters: Sequence[AdapterConfig], *, seed: int = 1) -> PeftModel:
    """All adapters in one PEFT model, with random B matrices, because zero matrices would change nothing."""
    configs = [lora_config(adapter, backbone.encoder) for adapter in adapters]
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        model = get_peft_model(structure_copy(backbone.encoder), configs[0], adapter_name=adapters[0].name)
        for adapter, config in zip(adapters[1:], configs[1:], strict=True):
            model.add_adapter(adapter.name, config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.02)
    return model.eval()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    name: str
    seconds: float
    """Median CPU seconds of the process."""
    speedup: float
    """Median over rounds of the first variant's time divided by this variant's time in the same round."""
    result: Any
    """Result of the variant in the last round."""


def interleave(variants: Mapping[str, Callable[[], object]], *, rounds: int) -> list[Timing]:
    """Run every variant once per round, after a warm-up round, so that other load affects all variants equally."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    results: dict[str, Any] = {}
    for round_index in range(rounds + 1):
        for name, variant in variants.items():
            started = time.process_time()
            results[name] = variant()
            if round_index > 0:
                times[name].append(time.process_time() - started)
    reference = next(iter(times.values()))
    return [
        Timing(
            name=name,
            seconds=statistics.median(seconds),
            speedup=statistics.median(a / b for a, b in zip(reference, seconds, strict=True)),
            result=results[name],
        )
        for name, seconds in times.items()
    ]


def versions_line() -> str:
    names = ("torch", "transformers", "peft")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    return f"python {platform.python_version()}, {versions}, {platform.processor() or platform.machine()}"
