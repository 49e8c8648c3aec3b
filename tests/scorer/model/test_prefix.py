"""Texts with a common prefix: a decoder reads it once, and energies are those of whole texts."""

import pytest
import torch
from scorer_parts import random_member
from transformers import AutoConfig, AutoModel, BertConfig, LlamaConfig, MistralConfig

from raydebm.scorer.ensemble import MergedEngine
from raydebm.scorer.model.backbone import Backbone
from raydebm.scorer.model.batching import plan_micro_batches
from raydebm.scorer.model.blocks import block_list
from raydebm.scorer.model.prefix import FAMILIES, common_prefixes, readings, shares_prefixes

SIZE = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "sliding_window": None,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 2,
}
ONE, OTHER = tuple(range(3, 43)), tuple(range(50, 85))  # problems of 40 and 35 tokens
CUT = (*ONE[:10], *ONE[-10:])
EQUAL = (*ONE, 60, 61, 2)
TEXTS = [
    (*ONE, 60, 2), (*OTHER, 12, 13, 14, 15, 2), EQUAL, (*CUT, *range(30, 70), 2), (5, 6, 2), (*OTHER, 2), EQUAL,
    (*ONE, 9, 8, 7, 6, 5, 4, 3, 2), (*OTHER[:20], *ONE, 2),
]  # fmt: skip


def decoder(family):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        encoder = AutoModel.from_config(AutoConfig.for_model(family, **SIZE)).eval()
    encoder.requires_grad_(requires_grad=False)
    tokenizer = type("Padding", (), {"pad_token_id": 0})
    return Backbone(name=family, family=family, encoder=encoder, tokenizer=tokenizer, fingerprint="f")


def engine_of(backbone, ids, layers, *, micro_batch_tokens=8192):
    """(engine with an adapter that reads the last token and one that reads the mean, their energies by PEFT)"""
    adapters = [
        random_member(backbone, "a0", layers[0], ids=ids, pooling="last"),
        random_member(backbone, "a1", layers[1], ids=ids, pooling="mean"),
    ]
    engine = MergedEngine(backbone, [stored for stored, _ in adapters], micro_batch_tokens=micro_batch_tokens)
    return engine, torch.stack([energies for _, energies in adapters])


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("layers", [("all", "all"), ("upper half", (-1,))], ids=["all", "upper"])
def test_energies_are_those_of_whole_texts(family, layers):
    engine, whole = engine_of(decoder(family), TEXTS, layers)

    torch.testing.assert_close(engine.energies(TEXTS, [0, 1]), whole, atol=1e-4, rtol=0)
    torch.testing.assert_close(engine.energies(TEXTS, [1, 0]), whole.flip(0), atol=1e-4, rtol=0)
    assert float(whole.std()) > 1e-2


@pytest.mark.parametrize("count", [1, 2, 60])
def test_energies_do_not_depend_on_the_size_of_a_forward_pass(count):
    engine, whole = engine_of(decoder("llama"), TEXTS, ("all", "all"), micro_batch_tokens=count)

    torch.testing.assert_close(engine.energies(TEXTS, [0, 1]), whole, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("layers", "lowest", "highest"),
    [
        pytest.param(("all", "all"), 2 * (40 + 3 * 5), 2 * (40 + 3 * 5), id="by each adapter"),
        pytest.param(("upper half", (-1,)), 40 + 3 * 5, 2 * (40 + 3 * 5), id="below the adapters by the first alone"),
    ],
)
def test_the_problem_is_read_once(layers, lowest, highest):
    candidates = [(*ONE, first, 60, 61, 62, 2) for first in (70, 71, 72)]
    engine, _ = engine_of(decoder("qwen2"), candidates, layers)
    tokens = {0: 0, 3: 0}

    def count(number):
        def hook(block, given, output):
            tokens[number] += given[0].shape[0] * given[0].shape[1]

        return hook

    for encoder, *_ in engine._members:
        for number in tokens:
            block = block_list(encoder)[1][number]
            getattr(block, "block", block).register_forward_hook(count(number))
    engine.energies(candidates, [0, 1])

    assert tokens == {0: lowest, 3: highest}


def test_groups_save_the_most_tokens():
    texts, like_them = [(*ONE, number) for number in range(6)], (*ONE[:32], 90)
    assert common_prefixes([*texts[:4], like_them]) == [(32, [0, 1, 2, 3, 4])]  # 4 * 32 > 3 * 40
    assert common_prefixes([*texts, like_them]) == [(40, [0, 1, 2, 3, 4, 5])]  # 6 * 32 < 5 * 40
    assert common_prefixes([(*OTHER, 1), texts[0], (*OTHER, 2), (3, 4), texts[1]]) == [(35, [0, 2]), (40, [1, 4])]


def test_a_token_of_each_text_is_left():
    assert common_prefixes([EQUAL, EQUAL]) == [(len(EQUAL) - 1, [0, 1])]


def test_a_short_prefix_is_read_with_each_text():
    assert common_prefixes([(*ONE[:31], 1), (*ONE[:31], 2)]) == []
    assert common_prefixes([(*ONE[:32], 1), (*ONE[:32], 2)]) == [(32, [0, 1])]


def test_a_gpu_reads_few_texts_whole():
    few, many = [(*ONE, 60 + number % 30, number) for number in range(10)], [(*ONE, 60, n) for n in range(500)]
    assert [reading.prefixes for reading in readings(few, max_tokens=8192, pad_id=0, device="cuda", shares=True)] == [
        None
    ]
    (reading,) = readings(many, max_tokens=8192, pad_id=0, device="cuda", shares=True)
    assert reading.prefixes.ids.tolist() == [[*ONE, 60]]


def test_prefixes_and_what_follows_keep_to_the_size_of_a_forward_pass():
    candidates = [(*problem, *range(first, first + 20), 2) for problem in (ONE, OTHER) for first in range(20)]
    plan = list(readings(candidates, max_tokens=150, pad_id=0, shares=True))

    assert [reading.prefixes.ids.shape for reading in plan] == [(1, 40), (1, 35)]  # two would be more than half
    assert sorted(place for reading in plan for place in reading.positions) == list(range(40))
    # 110 and 115 tokens are left: five texts of 21 tokens. They see 61 keys each, 305 of the 600 that 150 tokens allow.
    assert {batch.ids.shape for reading in plan for batch in reading.batches} == {(5, 21)}


def test_short_texts_after_a_long_prefix_do_not_copy_it_without_limit():
    candidates = [(*ONE, 60 + n % 30, n) for n in range(30)]
    (reading,) = readings(candidates, max_tokens=100, pad_id=0, shares=True)
    assert [batch.ids.shape for batch in reading.batches] == [(9, 2)] * 3 + [(3, 2)]  # 42 keys each, of at most 400


def test_texts_of_a_micro_batch_can_be_limited():
    assert plan_micro_batches([3, 3, 3], max_tokens=100, max_texts=2) == [[0, 1], [2]]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LlamaConfig(), True),
        (MistralConfig(sliding_window=None), True),
        (MistralConfig(sliding_window=16), False),
        (LlamaConfig(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}), False),
        (BertConfig(), False),
        (BertConfig(is_decoder=True), False),
    ],
    ids=["llama", "no window", "window", "frequencies by length", "encoder", "another family"],
)
def test_only_causal_models_that_keep_all_keys_share(config, expected):
    assert shares_prefixes(config) == expected
