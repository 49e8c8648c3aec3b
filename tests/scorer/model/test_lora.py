import pytest
import torch
from adapter_sizes import adapter_size
from transformers import ModernBertConfig

from raydebm.config import PAPER_ADAPTERS, AdapterConfig
from raydebm.errors import CheckpointError, ConfigError
from raydebm.scorer.model.lora import attach, lora_config, low_rank_updates, merged_copy
from raydebm.scorer.model.targets import target_modules

BY_NAME = {adapter.name: adapter for adapter in PAPER_ADAPTERS}


@pytest.mark.parametrize(
    ("name", "lora"), [("a0", 540_672), ("a1", 1_148_928), ("a2", 1_081_344), ("a3", 270_336), ("a4", 1_081_344)]
)
def test_size_on_modernbert_base(name, lora):
    """22 layers of d=768; Wqkv 768->2304, attention Wo 768->768, feed-forward Wi 768->2304 and Wo 1152->768."""
    assert adapter_size(BY_NAME[name], ModernBertConfig()) == (lora, 592_897)


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("a0", {"query_proj", "value_proj"}),
        ("a1", {"query_proj", "key_proj", "value_proj"}),
        ("a4", {"query_proj", "value_proj", "attention.output.dense"}),
    ],
)
def test_deberta_targets_are_the_papers(tiny, name, modules):
    assert set(target_modules(BY_NAME[name], tiny["deberta-v2"].encoder)) == modules


def test_deberta_targets_without_wqkv_are_refused(tiny):
    adapter = AdapterConfig(name="x", rank=8, alpha=16, targets=("Wo",))
    with pytest.raises(ConfigError, match=r"'x'.*include Wqkv"):
        target_modules(adapter, tiny["deberta-v2"].encoder)


def trained_member(backbone, adapter):
    """A PEFT model with random B matrices, and the update that its files would hold."""
    model = attach(backbone.encoder, lora_config(adapter, backbone.encoder)).eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    state = {key.replace(".default", ""): value for key, value in model.state_dict().items() if "lora_" in key}
    config = {"r": adapter.rank, "lora_alpha": adapter.alpha}
    return model, low_rank_updates(state, config, where="test")


@pytest.mark.parametrize("family", ["modernbert", "deberta-v2", "bert", "mpnet", "llama", "qwen2"])
@pytest.mark.parametrize("adapter", PAPER_ADAPTERS, ids=lambda adapter: adapter.name)
def test_merged_weights_give_what_peft_gives(tiny, family, adapter):
    backbone = tiny[family]
    model, updates = trained_member(backbone, adapter)
    ids = torch.tensor([[1, 7, 8, 2, 9, 2]])
    with torch.no_grad():
        expected = model(input_ids=ids).last_hidden_state
        merged = merged_copy(backbone.encoder, updates, where="test")(input_ids=ids).last_hidden_state
        plain = backbone.encoder(input_ids=ids).last_hidden_state
    torch.testing.assert_close(merged, expected, atol=1e-5, rtol=1e-5)
    assert (merged - plain).abs().max() > 1e-2


def test_attaching_leaves_the_backbone_as_it_was(tiny):
    encoder = tiny["bert"].encoder
    attach(encoder, lora_config(BY_NAME["a1"], encoder))
    assert not [name for name, _ in encoder.named_modules() if "lora" in name]


def test_an_update_for_another_backbone_is_refused(tiny):
    _, updates = trained_member(tiny["modernbert"], BY_NAME["a0"])
    with pytest.raises(CheckpointError, match=r"it adapts 'layers\.0\.attn\.Wqkv'.*the backbone has nothing there"):
        merged_copy(tiny["bert"].encoder, updates, where="test")


def test_one_adapter_of_rank_96_has_as_many_parameters_as_the_papers_ensemble():
    """The monolithic control of configs/paper.yaml: within 0.1 % of the five adapters with their five heads."""
    ensemble = [adapter_size(adapter, ModernBertConfig()) for adapter in PAPER_ADAPTERS]
    monolith = adapter_size(AdapterConfig(name="m0", rank=96, alpha=192, targets=("Wqkv",)), ModernBertConfig())
    assert (sum(map(sum, ensemble)), sum(monolith)) == (7_087_109, 7_080_961)
