"""Blocks below the lowest adapted one run once for all members."""

import pytest
import torch
from peft import get_peft_model_state_dict

from raydebm.config import AdapterConfig
from raydebm.scorer.checkpoint import StoredAdapter
from raydebm.scorer.checkpoint_records import AdapterRecord
from raydebm.scorer.ensemble import MergedEngine
from raydebm.scorer.model.batching import pad
from raydebm.scorer.model.blocks import block_list
from raydebm.scorer.model.head import EnergyHead, pooled
from raydebm.scorer.model.lora import attach, lora_config
from raydebm.scorer.model.trunk import lowest_adapted

IDS = [(1, 10, 11, 12, 2), (1, 20, 21, 2), (1, 30, 31, 32, 33, 34, 35, 2)]


def pooling_of(backbone):
    return "last" if backbone.is_decoder else "cls"


def member(backbone, name, layers):
    """(what a checkpoint holds of an adapter with random weights, its energies of IDS by PEFT)"""
    adapter = AdapterConfig(name=name, rank=2, alpha=4, targets=("Wqkv",), layers=layers)
    model = attach(backbone.encoder, lora_config(adapter, backbone.encoder)).eval()
    head = EnergyHead(backbone.hidden_size).eval()
    with torch.no_grad():
        for key, weights in [*model.named_parameters(), *head.named_parameters()]:
            if "lora_B" in key or key.startswith("out"):
                weights.normal_(std=0.3)
        batch = pad(IDS, positions=range(len(IDS)), pad_id=0)
        states = model(input_ids=batch.ids, attention_mask=batch.mask).last_hidden_state
        energies = head(pooled(states, batch.mask, pooling=pooling_of(backbone)))
    stored = StoredAdapter(
        record=AdapterRecord.model_construct(adapter=adapter, pooling=pooling_of(backbone)),
        peft_config={"r": 2, "lora_alpha": 4},
        lora=get_peft_model_state_dict(model, save_embedding_layers=False),
        head=head.state_dict(),
    )
    return stored, energies


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize("family", ["bert", "deberta-v2", "llama", "modernbert", "mpnet", "qwen2"])
@pytest.mark.parametrize(
    ("layers", "num_runs"),
    [
        pytest.param(["all", "all"], [2, 2, 2, 2], id="all adapted, nothing shared"),
        pytest.param([(1, 3), "upper half"], [1, 2, 2, 2], id="the lowest of any adapter counts"),
        pytest.param([(-1,), "upper quarter"], [1, 1, 1, 2], id="three of four shared"),
    ],
)
def test_energies_are_those_of_peft_and_shared_blocks_run_once(deep, family, layers, num_runs):
    backbone = deep(family, 4)
    members = [member(backbone, f"a{number}", part) for number, part in enumerate(layers)]
    engine = MergedEngine(backbone, [stored for stored, _ in members], micro_batch_tokens=8192)
    runs = [0, 0, 0, 0]
    for encoder, *_ in engine._members:
        for number, block in enumerate(block_list(encoder)[1]):
            count_runs(getattr(block, "block", block), runs, number)

    for asked in ([0, 1], [1], [1, 0]):
        expected = torch.stack([members[index][1] for index in asked])
        torch.testing.assert_close(engine.energies(IDS, asked), expected, atol=2e-5, rtol=0)

    assert runs == [5 if count == 2 else 3 for count in num_runs]  # five members in three calls
    assert float(members[0][1].std()) > 1e-3


def count_runs(block, runs, number):
    def count(*of):
        runs[number] += 1

    block.register_forward_hook(count)


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        (["encoder.layer.2.attention.self.query", "encoder.layer.1.output.dense"], 1),
        (["embeddings.word_embeddings"], 0),
        (["encoder.layer.3.output.dense"], 3),
    ],
)
def test_the_lowest_adapted_block_is_found_by_name(deep, modules, expected):
    assert lowest_adapted(deep("bert", 4).encoder, modules) == expected
