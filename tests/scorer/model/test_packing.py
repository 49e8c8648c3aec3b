"""Texts packed into rows: an encoder gives the energies of padded texts, eager and compiled."""

import pytest
import torch
from scorer_parts import random_member
from transformers import BertConfig, BertModel, ModernBertConfig, ModernBertModel

from raydebm.scorer.ensemble import MergedEngine
from raydebm.scorer.model.backbone import Backbone
from raydebm.scorer.model.packing import Packing

SIZE = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
    "pad_token_id": 0,
}
WINDOW = 16
LENGTHS = (5, WINDOW + 1, 40, 3, 9, 9, 30, 12)
IDS = [(1, *((7 * number + 3 * place) % 90 + 4 for place in range(n - 2)), 2) for number, n in enumerate(LENGTHS)]


def backbone_of(family):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        if family == "bert":
            encoder = BertModel(BertConfig(**SIZE), add_pooling_layer=False)
        else:
            ids = {"bos_token_id": 1, "cls_token_id": 1, "eos_token_id": 2, "sep_token_id": 2}
            encoder = ModernBertModel(ModernBertConfig(**SIZE, **ids, local_attention=WINDOW))
    encoder.eval().requires_grad_(requires_grad=False)
    tokenizer = type("Padding", (), {"pad_token_id": 0})
    return Backbone(name=family, family=family, encoder=encoder, tokenizer=tokenizer, fingerprint="f")


def engine_of(backbone, *, budget, layers=("all", "all")):
    """(packed engine with an adapter that reads [CLS] and one that reads the mean, energies of padded texts by PEFT)"""
    adapters = [
        random_member(backbone, "a0", layers[0], ids=IDS, pooling="cls"),
        random_member(backbone, "a1", layers[1], ids=IDS, pooling="mean"),
    ]
    engine = MergedEngine(backbone, [stored for stored, _ in adapters], micro_batch_tokens=budget, packed=True)
    return engine, torch.stack([energies for _, energies in adapters])


@pytest.mark.parametrize("family", ["bert", "modernbert"])
@pytest.mark.parametrize(
    ("budget", "num_rows"),
    [
        pytest.param(1, 8, id="longer than the budget"),
        pytest.param(64, 3, id="several rows"),
        pytest.param(sum(LENGTHS), 1, id="nothing at the end"),
        pytest.param(512, 1, id="padding at the end"),
    ],
)
def test_energies_are_those_of_padded_texts(family, budget, num_rows):
    engine, padded = engine_of(backbone_of(family), budget=budget)

    assert len(list(engine.packing.rows(IDS))) == num_rows
    torch.testing.assert_close(engine.energies(IDS, [0, 1]), padded, atol=1e-5, rtol=0)
    assert float(padded.std()) > 1e-2


def test_blocks_below_the_adapters_are_shared_in_rows_too():
    engine, padded = engine_of(backbone_of("modernbert"), budget=64, layers=("upper half", (-1,)))

    torch.testing.assert_close(engine.energies(IDS, [1, 0]), padded.flip(0), atol=1e-5, rtol=0)


def test_a_row_has_a_part_of_the_budget_and_positions_start_again():
    encoder = backbone_of("bert").encoder
    texts = [[5] * length for length in (100, 700, 200, 300)]

    rows = list(Packing([encoder], "sdpa", max_tokens=512, pad_id=0).rows(texts))

    assert [(row.positions, row.inputs["input_ids"].shape[1], row.is_full) for row in rows] == [
        ([1], 700, False),  # longer than the budget
        ([3, 2], 512, True),
        ([0], 128, False),
    ]
    assert rows[2].inputs["position_ids"][0].tolist() == [*range(100), *range(28)]
    assert rows[2].inputs["input_ids"][0].tolist() == [5] * 100 + [0] * 28


def test_flash_attention_is_given_where_texts_end_and_a_bound_of_their_lengths():
    packing = Packing([backbone_of("bert").encoder], "torch_varlen", max_tokens=256, pad_id=0)

    (row,) = packing.rows([[5] * length for length in (30, 20, 50)])

    assert row.inputs["cu_seq_lens_q"].tolist() == [0, 50, 80, 100, 128]
    assert row.inputs["max_length_q"] == 64


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_full_rows_are_compiled_once_whatever_is_in_them(family):
    torch._dynamo.reset()
    graphs = torch._dynamo.utils.counters["stats"]
    graphs.clear()
    engine, padded = engine_of(backbone_of(family), budget=256)
    engine.packing.rows_to_compile = 1

    engine.energies(IDS, [0])  # 125 tokens: not full
    engine.energies(IDS * 2, [0])
    assert engine.packing.timing == {}
    engine.energies(IDS * 2, [0])
    assert set(engine.packing.timing) == {"compile_s", "row_eager_s", "row_compiled_s"}

    compiled = graphs["unique_graphs"]
    engine.packing.is_compiled = True
    padded = padded.repeat(1, 2)
    torch.testing.assert_close(engine.energies(IDS * 2, [0, 1]), padded, atol=1e-5, rtol=0)
    torch.testing.assert_close(engine.energies((IDS * 2)[1:], [0, 1]), padded[:, 1:], atol=1e-5, rtol=0)
    assert graphs["unique_graphs"] == compiled > 0


def test_nothing_is_packed_unasked_on_a_cpu():
    backbone = backbone_of("bert")
    member, _ = random_member(backbone, "a0", "all", ids=IDS, pooling="cls")

    assert MergedEngine(backbone, [member], micro_batch_tokens=64).packing is None


def test_families_that_the_tests_do_not_compare_stay_padded(tiny):
    member, _ = random_member(tiny["mpnet"], "a0", "all", ids=IDS, pooling="cls")

    assert MergedEngine(tiny["mpnet"], [member], micro_batch_tokens=64, packed=True).packing is None
