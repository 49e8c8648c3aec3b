"""What a head reads: [CLS] or the mean over tokens, the same in training, in scoring and by PEFT alone."""

import dataclasses

import pytest
import torch

from raydebm.config import PAPER_ADAPTERS
from raydebm.errors import ConfigError
from raydebm.scorer.checkpoint import read_ensemble, write_ensemble
from raydebm.scorer.ensemble import EnsembleScorer
from raydebm.scorer.model.head import check_pooling, pooled

TEXTS = [("w1 w2 w3", "w4 right"), ("w1 w2 w3", "w9 w8 w7 wrong"), ("w40 w41", "w1 w2 w3 w4 w5 right")]
STATES = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 0.0]], [[2.0, 2.0], [4.0, 0.0], [9.0, 9.0]]])
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])


def test_cls_is_the_first_tokens_state():
    assert pooled(STATES, MASK, pooling="cls").tolist() == [[1.0, 2.0], [2.0, 2.0]]


def test_the_mean_leaves_padding_out():
    assert pooled(STATES, MASK, pooling="mean").tolist() == [[3.0, 2.0], [3.0, 1.0]]


def test_last_is_the_state_before_the_padding():
    assert pooled(STATES, MASK, pooling="last").tolist() == [[5.0, 0.0], [4.0, 0.0]]


def test_cls_of_a_decoder_is_refused():
    with pytest.raises(ConfigError, match=r"pooling is cls.*'tiny'.*last or mean"):
        check_pooling("cls", is_decoder=True, name="tiny")


@pytest.fixture(scope="module")
def checkpoint(tiny, groups, settings, train_all, tmp_path_factory):
    """Two adapters that read means, trained."""
    folder = tmp_path_factory.mktemp("mean")
    settings = dataclasses.replace(settings, pooling="mean", max_epochs=6, learning_rate=1e-2)
    trained = train_all(PAPER_ADAPTERS[:2], backbone=tiny["bert"], groups=groups, settings=settings, folder=folder)
    write_ensemble(folder / "scorer", trained, {})
    return folder / "scorer"


def test_the_checkpoint_says_what_its_heads_read(checkpoint):
    record, _ = read_ensemble(checkpoint)
    assert record.pooling == "mean"
    card = (checkpoint / "README.md").read_text(encoding="utf-8")
    assert "the mean of the tokens' states" in card


def test_padding_does_not_change_energies(checkpoint):
    together = EnsembleScorer.load(checkpoint, device="cpu").score(TEXTS)
    alone = EnsembleScorer.load(checkpoint, device="cpu", micro_batch_tokens=1).score(TEXTS)
    for first, second in zip(together, alone, strict=True):
        assert first.members == pytest.approx(second.members, abs=1e-5)
