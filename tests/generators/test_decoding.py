"""Decoding a tiny random Llama: the same text alone and in company, and the same as transformers when greedy."""

import random
import threading
from collections import Counter

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from raydebm.generators.decoding import DecodeRow, decode, draw

VOCABULARY = 200
EOS = 2
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
}  # fmt: skip


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
    with torch.no_grad():
        model.lm_head.weight.mul_(20)  # far from uniform, so that texts differ and some rows stop early
    return model


def row(seed, *, prompt=None, temperature=0.7, top_p=0.95, max_new_tokens=40):
    chance = random.Random(seed)
    prompt = prompt or tuple(chance.randrange(3, VOCABULARY) for _ in range(chance.randrange(4, 30)))
    return DecodeRow(prompt_ids=prompt, seed=seed, temperature=temperature, top_p=top_p, max_new_tokens=max_new_tokens)


def texts(model, rows, *, eos_ids=(EOS,), **options):
    return [decoded.token_ids for decoded in decode(model, rows, eos_ids=eos_ids, pad_id=0, **options)]


def test_text_alone_is_text_in_a_batch_of_16(model):
    rows = [row(seed) for seed in range(16)]
    together = texts(model, rows)
    assert [texts(model, [alone])[0] for alone in rows] == together
    assert len({tuple(text) for text in together}) == 16


def test_a_cancelled_decoding_ends_after_its_current_step(model):
    cancelled = threading.Event()

    def third_token(index, token_ids):
        if len(token_ids) == 3:
            cancelled.set()
        return False

    decoded = texts(model, [row(seed) for seed in range(4)], eos_ids=(), should_stop=third_token, cancelled=cancelled)
    assert [len(text) for text in decoded] == [3, 3, 3, 3]


def test_samples_of_one_prompt_differ_by_seed_only(model):
    prompt = (5, 6, 7, 8, 9)
    drawn = texts(model, [row(1, prompt=prompt), row(2, prompt=prompt), row(1, prompt=prompt)])
    assert drawn[0] == drawn[2] != drawn[1]


@pytest.mark.parametrize("family", ["llama", "mistral with a sliding window"])
def test_greedy_equals_transformers_generate(model, family):
    """Beside sampled rows, which end earlier or later."""
    if family != "llama":
        torch.manual_seed(1)
        model = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=8)).eval()
    rows = [row(seed, temperature=temperature) for seed in range(8) for temperature in (0.0, 0.7)]
    for one, ours in list(zip(rows, texts(model, rows), strict=True))[::2]:
        ids = torch.tensor([one.prompt_ids])
        theirs = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=40,
            eos_token_id=EOS,
            pad_token_id=0,
        )
        expected = theirs[0, ids.shape[1] :].tolist()
        assert ours == (expected[: expected.index(EOS)] if EOS in expected else expected)


def test_rows_that_stop_leave_the_others_alone(model):
    """Every token of one row's text is made an end of sequence for all: rows end at different times."""
    rows = [row(seed, max_new_tokens=5 + 3 * (seed % 7)) for seed in range(16)]
    full = texts(model, rows)
    eos_ids = (EOS, full[0][2], full[5][4])
    stopped = texts(model, rows, eos_ids=eos_ids)
    for whole, cut in zip(full, stopped, strict=True):
        ends = [index for index, token in enumerate(whole) if token in eos_ids]
        assert cut == (whole[: ends[0]] if ends else whole)
    assert any(len(cut) < len(whole) for whole, cut in zip(full, stopped, strict=True))


def test_each_row_has_its_own_limit_and_reason(model):
    decoded = decode(model, [row(1, max_new_tokens=3), row(2, max_new_tokens=0)], eos_ids=(), pad_id=0)
    assert [len(sequence.token_ids) for sequence in decoded] == [3, 0]
    assert [sequence.finish_reason for sequence in decoded] == ["length", "length"]


def test_should_stop_ends_a_row(model):
    decoded = decode(
        model, [row(1), row(2)], eos_ids=(), pad_id=0, should_stop=lambda index, ids: index == 0 and len(ids) == 4
    )
    assert (len(decoded[0].token_ids), decoded[0].finish_reason) == (4, "stop")
    assert len(decoded[1].token_ids) == 40


def drawn_counts(probabilities, *, top_p, n=20_000, temperature=1.0):
    chance_B = torch.rand(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)  # noqa: N806
    logits = torch.tensor(probabilities).log().expand(n, -1)
    tokens = draw(
        logits,
        temperature_B=torch.full((n,), temperature),
        top_p_B=torch.full((n,), top_p),
        chance_B=chance_B,
    )
    counts = Counter(tokens.tolist())
    return [counts[token] / n for token in range(len(probabilities))]


def test_draw_follows_the_distribution():
    assert drawn_counts([0.1, 0.2, 0.3, 0.4], top_p=1.0) == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.015)


def test_nucleus_is_the_smallest_set_that_reaches_top_p():
    """0.4 + 0.3 < 0.75 <= 0.4 + 0.3 + 0.2: three tokens stay, renormalised by 0.9."""
    expected = [0.0, 2 / 9, 3 / 9, 4 / 9]
    assert drawn_counts([0.1, 0.2, 0.3, 0.4], top_p=0.75) == pytest.approx(expected, abs=0.015)
