"""Decoders as backbones: training, scoring and PEFT alone give the same energies, whatever the padding."""

import dataclasses

import pytest

from raydebm.config import PAPER_ADAPTERS
from raydebm.errors import CheckpointError
from raydebm.scorer.checkpoint import write_ensemble
from raydebm.scorer.ensemble import EnsembleScorer
from raydebm.scorer.model.backbone import make_backbone
from raydebm.scorer.model.batching import TextEncoder, micro_batches
from raydebm.scorer.training.member import EnsembleMember

TEXTS = [("w1 w2 w3", "w4 right"), ("w1 w2 w3", "w9 w8 w7 wrong"), ("w40 w41", "w1 w2 w3 w4 w5 right")]


class Bytes:
    """A tokenizer of one token per character; ``bos`` stands before every text where it is given."""

    eos_token_id = 2

    def __init__(self, bos=None):
        self.bos_token_id = bos

    def __call__(self, texts, add_special_tokens=True, **_):
        opening = [self.bos_token_id] if add_special_tokens and self.bos_token_id is not None else []
        if isinstance(texts, str):
            return {"input_ids": [*opening, *map(ord, texts)]}
        return {"input_ids": [[*opening, *map(ord, text)] for text in texts]}


@pytest.mark.parametrize(("bos", "opening"), [(None, []), (1, [1])])
def test_a_decoder_reads_problem_newline_answer_and_end(bos, opening):
    (encoded,) = TextEncoder(Bytes(bos), max_length=20, is_decoder=True)([("ab", "c")])

    assert list(encoded.ids) == [*opening, ord("a"), ord("b"), ord("\n"), ord("c"), 2]


def test_a_long_problem_is_cut_and_the_answer_is_kept():
    (encoded,) = TextEncoder(Bytes(), max_length=6, is_decoder=True)([("abcdef", "xy")])

    assert ("".join(map(chr, encoded.ids[:-1])), encoded.num_truncated) == ("af\nxy", 4)


def checkpoint_of(backbone, groups, settings, train_all, folder):
    settings = dataclasses.replace(settings, pooling="last", learning_rate=1e-2, max_epochs=8)
    trained = train_all(PAPER_ADAPTERS[:2], backbone=backbone, groups=groups, settings=settings, folder=folder)
    write_ensemble(folder / "scorer", trained, {})
    return folder / "scorer"


@pytest.fixture(scope="module")
def checkpoint(tiny, groups, settings, train_all, tmp_path_factory):
    """On Llama: for Qwen2, transformers makes a byte-level tokenizer of any file, and of words nothing is left."""
    return checkpoint_of(tiny["llama"], groups, settings, train_all, tmp_path_factory.mktemp("decoder"))


def test_energies_do_not_depend_on_the_padding(checkpoint):
    together = EnsembleScorer.load(checkpoint, device="cpu").score(TEXTS)
    alone = EnsembleScorer.load(checkpoint, device="cpu", micro_batch_tokens=1).score(TEXTS)

    for first, second in zip(together, alone, strict=True):
        assert first.members == pytest.approx(second.members, abs=1e-5)


def test_gradients_reach_adapter_and_head_alone(tiny):
    backbone = tiny["llama"]
    member = EnsembleMember(backbone, PAPER_ADAPTERS[1], head_dropout=0.0, autocast=None, pooling="last")
    encoder = TextEncoder(backbone.tokenizer, max_length=48, is_decoder=True)
    (batch,) = micro_batches([text.ids for text in encoder(TEXTS)], max_tokens=1000, pad_id=0)

    member(batch).sum().backward()

    reached = {name for name, parameter in member.named_parameters() if parameter.grad is not None}
    assert reached == {name for name, _ in member.named_parameters() if "lora_" in name or name.startswith("head.")}
    assert not [name for name, parameter in backbone.encoder.named_parameters() if parameter.grad is not None]


def test_a_decoders_tokenizer_needs_an_end(tiny, tokenizer):
    tokenizer.eos_token = None

    with pytest.raises(CheckpointError, match="no eos_token_id; a decoder's tokenizer is needed"):
        make_backbone(tiny["qwen2"].encoder, tokenizer, name="x")
