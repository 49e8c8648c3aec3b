"""Blocks below the lowest adapted one run once for all members."""

import pytest
import torch
from scorer_parts import random_member

from raydebm.scorer.ensemble import MergedEngine
from raydebm.scorer.model.blocks import block_list
from raydebm.scorer.model.trunk import lowest_adapted

IDS = [(1, 10, 11, 12, 2), (1, 20, 21, 2), (1, 30, 31, 32, 33, 34, 35, 2)]


def member(backbone, name, layers):
    return random_member(backbone, name, layers, ids=IDS, pooling="last" if backbone.is_decoder else "cls")


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
