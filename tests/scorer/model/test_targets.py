"""Which layers an adapter adapts, by role and by name, on models of several families."""

import pytest
from transformers import DistilBertConfig, GPTNeoXConfig

from raydebm.config import AdapterConfig
from raydebm.errors import ConfigError
from raydebm.scorer.model.backbone import encoder_on_meta
from raydebm.scorer.model.targets import adapted_blocks, linear_layers, target_modules

SMALL = {"vocab_size": 32, "max_position_embeddings": 16}


def adapter(*targets):
    return AdapterConfig(name="x", rank=2, alpha=4, targets=targets)


def adapted(encoder, *targets):
    """Names of the adapted layers of the first block, as PEFT matches suffixes."""
    suffixes = target_modules(adapter(*targets), encoder)
    return {
        name.split(".0.", 1)[1]
        for name, module in encoder.named_modules()
        if ".0." in f".{name}" and any(f".{name}".endswith(f".{suffix}") for suffix in suffixes)
    }


@pytest.mark.parametrize(
    ("family", "target", "expected"),
    [
        ("modernbert", "Wqkv", {"attn.Wqkv"}),
        ("modernbert", "Wo", {"attn.Wo", "mlp.Wo"}),
        ("modernbert", "Wi", {"mlp.Wi"}),
        ("bert", "Wqkv", {"attention.self.query", "attention.self.key", "attention.self.value"}),
        ("bert", "Wo", {"attention.output.dense", "output.dense"}),
        ("bert", "Wi", {"intermediate.dense"}),
        ("mpnet", "Wqkv", {"attention.attn.q", "attention.attn.k", "attention.attn.v"}),
        ("mpnet", "Wo", {"attention.attn.o", "output.dense"}),
        ("llama", "Wqkv", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}),
        ("llama", "Wo", {"self_attn.o_proj", "mlp.down_proj"}),
        ("llama", "Wi", {"mlp.gate_proj", "mlp.up_proj"}),
        ("qwen2", "Wi", {"mlp.gate_proj", "mlp.up_proj"}),
    ],
)
def test_layers_of_a_role(tiny, family, target, expected):
    assert adapted(tiny[family].encoder, target) == expected


def test_separate_and_fused_layers_of_families_that_nobody_listed():
    distilbert = encoder_on_meta(DistilBertConfig(dim=8, hidden_dim=12, n_heads=2, n_layers=1, **SMALL))
    neox = encoder_on_meta(GPTNeoXConfig(hidden_size=8, intermediate_size=12, num_attention_heads=2,
                                         num_hidden_layers=1, **SMALL))  # fmt: skip

    assert adapted(distilbert, "Wqkv") == {"attention.q_lin", "attention.k_lin", "attention.v_lin"}
    assert adapted(distilbert, "Wo", "Wi") == {"attention.out_lin", "ffn.lin1", "ffn.lin2"}
    assert adapted(neox, "Wqkv", "Wi") == {"attention.query_key_value", "mlp.dense_h_to_4h"}


def test_a_module_is_named_itself(tiny):
    assert adapted(tiny["qwen2"].encoder, "q_proj", "mlp.down_proj") == {"self_attn.q_proj", "mlp.down_proj"}


def test_a_target_that_is_not_there_is_refused_with_what_is(tiny):
    with pytest.raises(ConfigError, match=r"'x': target 'c_attn' is neither a role.*called down_proj, gate_proj"):
        target_modules(adapter("c_attn"), tiny["llama"].encoder)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("all", (0, 1, 2, 3, 4, 5)),
        ("upper half", (3, 4, 5)),
        ("upper quarter", (4, 5)),
        ((5, 1), (1, 5)),
        ((-1, -6), (0, 5)),
    ],
)
def test_layers_are_blocks_of_the_backbone(layers, expected):
    encoder = encoder_on_meta(DistilBertConfig(**SMALL, dim=8, n_heads=2, n_layers=6, hidden_dim=16))
    chosen = AdapterConfig(name="x", rank=2, alpha=4, targets=("Wqkv",), layers=layers)

    assert adapted_blocks(chosen, encoder) == expected
    suffixes = target_modules(chosen, encoder)
    matched = {name for name in linear_layers(encoder) if any(f".{name}".endswith(f".{end}") for end in suffixes)}
    assert matched == {
        f"transformer.layer.{number}.attention.{leaf}" for number in expected for leaf in ("q_lin", "k_lin", "v_lin")
    }


def test_a_layer_that_the_backbone_lacks_is_named(tiny):
    chosen = AdapterConfig(name="x", rank=2, alpha=4, targets=("Wqkv",), layers=(0, 2, -3))

    with pytest.raises(ConfigError, match=r"layers \[2, -3\] do not exist; the backbone has 2, numbered 0 to 1"):
        target_modules(chosen, tiny["bert"].encoder)
