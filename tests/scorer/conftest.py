"""Tiny encoders with random weights, and problems that they can learn."""

import pytest
import torch
from scorer_parts import WORDS, groups_of
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModel,
    BertConfig,
    DebertaV2Config,
    LlamaConfig,
    ModernBertConfig,
    MPNetConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

from raydebm.config import PAPER_ADAPTERS
from raydebm.scorer.model.backbone import load_backbone, make_backbone
from raydebm.scorer.training.adapter import train_adapter
from raydebm.scorer.training.schedule import AdapterData
from raydebm.scorer.training.settings import TrainingSettings

torch.set_num_threads(1)

IDS = {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}
SIZE = {
    "vocab_size": len(WORDS),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
}
DECODER_IDS = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": 2}
CONFIGS = {
    "modernbert": ModernBertConfig(**SIZE, **IDS),
    "deberta-v2": DebertaV2Config(
        **SIZE,
        pad_token_id=0,
        relative_attention=True,
        position_buckets=16,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        type_vocab_size=0,
    ),
    "bert": BertConfig(**SIZE, pad_token_id=0),
    "mpnet": MPNetConfig(**SIZE, pad_token_id=0),
    "llama": LlamaConfig(**SIZE, **DECODER_IDS, num_key_value_heads=1),
    "qwen2": Qwen2Config(**SIZE, **DECODER_IDS, num_key_value_heads=1),
}


def word_tokenizer() -> PreTrainedTokenizerFast:
    """One token per word."""
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        unk_token="[UNK]",
        eos_token="[SEP]",
    )


@pytest.fixture
def tokenizer():
    return word_tokenizer()


@pytest.fixture(scope="session")
def tiny_folders(tmp_path_factory):
    """family -> model folder, as a user would give it."""
    folders = {}
    for family, config in CONFIGS.items():
        folder = tmp_path_factory.mktemp("models") / family
        with torch.random.fork_rng():
            torch.manual_seed(5)
            AutoModel.from_config(config).save_pretrained(folder)
        word_tokenizer().save_pretrained(folder)
        folders[family] = folder
    return folders


@pytest.fixture(scope="session")
def tiny(tiny_folders):
    """family -> loaded backbone."""
    return {family: load_backbone(str(folder), device="cpu") for family, folder in tiny_folders.items()}


@pytest.fixture(scope="session")
def deep():
    """Makes backbones of a family with some number of blocks and random weights, in memory."""

    def make(family, num_blocks):
        options = {name: value for name, value in CONFIGS[family].to_dict().items() if name != "layer_types"}
        config = type(CONFIGS[family])(**options | {"num_hidden_layers": num_blocks})
        with torch.random.fork_rng():
            torch.manual_seed(3)
            encoder = AutoModel.from_config(config).eval()
        return make_backbone(encoder, word_tokenizer(), name=family, fingerprint="f")

    return make


@pytest.fixture(scope="session")
def groups():
    """(train, validation)."""
    return groups_of(0, 16), groups_of(100, 6)


@pytest.fixture(scope="session")
def settings():
    return TrainingSettings(max_length=48, batch_size=8, patience=3, learning_rate=3e-3, max_epochs=3, seed=1)


@pytest.fixture(scope="session")
def train_all():
    """Trains adapters one after the other on the same groups, (train, validation): name -> adapter folder."""

    def train(adapters, *, backbone, groups, settings, folder):
        return {
            adapter.name: train_adapter(
                adapter,
                AdapterData(train=groups[0], validation=groups[1]),
                backbone=backbone,
                settings=settings,
                out_dir=folder / adapter.name,
                report=lambda report: None,
            ).folder
            for adapter in adapters
        }

    return train


@pytest.fixture(scope="session")
def trained(tiny, groups, settings, train_all, tmp_path_factory):
    """All five paper adapters on the tiny ModernBERT: name -> adapter folder."""
    folder = tmp_path_factory.mktemp("trained")
    return train_all(PAPER_ADAPTERS, backbone=tiny["modernbert"], groups=groups, settings=settings, folder=folder)
