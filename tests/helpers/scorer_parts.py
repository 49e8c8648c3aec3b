"""A tiny backbone, problems that it can learn, and a recipe for both."""

import time
from pathlib import Path
from typing import Any
from unittest import mock

from raydebm.config import Recipe, parse_recipe
from raydebm.run.directory import RunDir
from raydebm.scorer.pairs import TrainingGroup

SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
WORDS = [*SPECIAL, *(f"w{index}" for index in range(90)), "right", "wrong"]


def tiny_backbone(folder: Path) -> Path:
    """A ModernBERT of two small layers with random weights, one token per word."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoModel, ModernBertConfig, PreTrainedTokenizerFast

    config = ModernBertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
        initializer_range=0.2,
        pad_token_id=0,
        cls_token_id=1,
        sep_token_id=2,
        bos_token_id=1,
        eos_token_id=2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(5)
        AutoModel.from_config(config).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]"
    ).save_pretrained(folder)
    return folder


def random_member(backbone: Any, name: str, layers: Any, *, ids: Any, pooling: str) -> Any:
    """(what a checkpoint holds of an adapter with random weights, its energies of the token ids by PEFT)"""
    import torch
    from peft import get_peft_model_state_dict

    from raydebm.config import AdapterConfig
    from raydebm.scorer.checkpoint import StoredAdapter
    from raydebm.scorer.checkpoint_records import AdapterRecord
    from raydebm.scorer.model.batching import pad
    from raydebm.scorer.model.head import EnergyHead, pooled
    from raydebm.scorer.model.lora import attach, lora_config

    adapter = AdapterConfig(name=name, rank=2, alpha=4, targets=("Wqkv",), layers=layers)
    model = attach(backbone.encoder, lora_config(adapter, backbone.encoder)).eval()
    head = EnergyHead(backbone.hidden_size).eval()
    with torch.no_grad():
        for key, weights in [*model.named_parameters(), *head.named_parameters()]:
            if "lora_B" in key or key.startswith("out"):
                weights.normal_(std=0.3)
        batch = pad(ids, positions=range(len(ids)), pad_id=0)
        states = model(input_ids=batch.ids, attention_mask=batch.mask).last_hidden_state
        energies = head(pooled(states, batch.mask, pooling=pooling))
    stored = StoredAdapter(
        record=AdapterRecord.model_construct(adapter=adapter, pooling=pooling),
        peft_config={"r": 2, "lora_alpha": 4},
        lora=get_peft_model_state_dict(model, save_embedding_layers=False),
        head=head.state_dict(),
    )
    return stored, energies


def groups_of(first: int, count: int) -> list[TrainingGroup]:
    """Problems whose good candidate says "right" and whose bad ones say "wrong"; two pairs each."""
    groups = []
    for index in range(first, first + count):
        prompt = " ".join(f"w{(index * 7 + step) % 90}" for step in range(4 + index % 5))
        texts = (f"w{index % 90} right", f"w{index % 90} wrong w3", f"w{(index + 1) % 90} w2 w1 wrong")
        groups.append(TrainingGroup(problem_id=f"p{index}", prompt=prompt, texts=texts, pairs=((0, 1), (0, 2))))
    return groups


def recipe_for(
    backbone: Path, *, task: str = "moody", num_adapters: int = 5, training: dict[str, Any] | None = None, **ray: Any
) -> Recipe:
    adapters = [
        {"name": "a0", "rank": 2, "alpha": 4, "targets": ["Wqkv"]},
        {"name": "a1", "rank": 2, "alpha": 4, "targets": ["Wqkv", "Wo"]},
        {"name": "a2", "rank": 4, "alpha": 8, "targets": ["Wqkv"]},
        {"name": "a3", "rank": 1, "alpha": 2, "targets": ["Wqkv"]},
        {"name": "a4", "rank": 2, "alpha": 4, "targets": ["Wqkv", "Wi"]},
        {"name": "a5", "rank": 1, "alpha": 2, "targets": ["Wo"]},
        {"name": "a6", "rank": 3, "alpha": 6, "targets": ["Wqkv"]},
    ]
    return parse_recipe(
        {
            "name": "tiny",
            "task": {"name": task},
            "generators": [{"kind": "recorded", "name": "g", "pool": "p", "model": "m"}],
            "scorer": {"backbone": str(backbone), "max_length": 64, "adapters": adapters[:num_adapters]},
            "training": {"learning_rate": 1e-3, "batch_size": 8, "max_epochs": 2, "patience": 2} | (training or {}),
            "ray": ray,
        }
    )


def train(recipe: Recipe, folder: Path | RunDir, *, size: int = 12, **options: Any) -> Any:
    """Ray is taken for one of our own, which saves a helper process for every adapter."""
    from raydebm.pipeline.ray.train import train_ensemble  # not in the workers, which take HeldRun from here

    with mock.patch("raydebm.pipeline.ray.train.is_own_cluster", return_value=True):
        return train_ensemble(
            recipe=recipe,
            run=folder if isinstance(folder, RunDir) else RunDir(str(folder)),
            train=groups_of(0, size),
            validation=groups_of(500, 4),
            **options,
        )


class HeldRun(RunDir):
    """A run directory in which the adapter ``a1`` cannot finish its second or third epoch before a worker was killed in
    it."""

    def write_json(self, value: object, *parts: str) -> None:
        if parts[-2].startswith("a1-") and parts[-1] in ("0002.json", "0003.json"):
            while not self.exists(f"killed-in-{parts[-1]}"):
                time.sleep(0.02)
        super().write_json(value, *parts)
