"""The type in which a CPU scores."""

import pytest
import torch
from transformers import AutoModel, BloomConfig, XLNetConfig

from raydebm.scorer.model import precision
from raydebm.scorer.model.backbone import load_backbone
from raydebm.scorer.model.blocks import block_list
from raydebm.scorer.model.precision import cpu_dtype, gain_of_bfloat16


class Gains:
    """A probe that answers from a list, and fails when it is asked once more."""

    def __init__(self, *gains: float) -> None:
        self._gains = list(gains)

    def __call__(self, encoder):
        return self._gains.pop(0)


@pytest.fixture
def probed(monkeypatch):
    """Make the probe give these gains, for encoders of any width."""
    monkeypatch.setattr(precision, "MIN_WIDTH", 32)  # that of the tiny encoders
    monkeypatch.setattr(precision, "_chosen", {})
    return lambda *gains: monkeypatch.setattr(precision, "gain_of_bfloat16", Gains(*gains))


@pytest.mark.parametrize(("gain", "expected"), [(1.19, "float32"), (1.2, "bfloat16"), (0.4, "float32")])
def test_bfloat16_is_taken_only_where_it_wins_clearly(tiny_folders, probed, gain, expected):
    probed(gain)

    assert load_backbone(str(tiny_folders["bert"]), device="cpu").dtype == expected


def test_narrow_encoders_are_scored_in_float32(tiny, monkeypatch):
    monkeypatch.setattr(precision, "gain_of_bfloat16", Gains())

    assert cpu_dtype(tiny["bert"].encoder) == torch.float32


@pytest.mark.parametrize("family", ["llama", "modernbert"])
def test_the_probe_measures_every_family_and_leaves_it_alone(tiny, family):
    encoder = tiny[family].encoder
    before = {name: weight.data_ptr() for name, weight in encoder.named_parameters()}

    assert gain_of_bfloat16(encoder) > 0
    assert {name: weight.data_ptr() for name, weight in encoder.named_parameters()} == before
    assert {weight.dtype for weight in encoder.parameters()} == {torch.float32}
    assert len(block_list(encoder)[1]) == 2


@pytest.mark.parametrize(
    "config",
    [
        BloomConfig(hidden_size=64, n_layer=2, n_head=2, vocab_size=50),
        XLNetConfig(d_model=64, n_layer=2, n_head=2, d_inner=64, vocab_size=50),
    ],
    ids=["bloom", "xlnet"],
)
def test_an_encoder_whose_config_states_no_limit_is_probed(config):
    assert gain_of_bfloat16(AutoModel.from_config(config).eval()) > 0
