"""Models that others trained, as tiny ones that are saved as a user would have them, and then damaged."""

import json

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    BertModel,
    GPTNeoXConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    MPNetConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    RobertaConfig,
)

from raydebm.errors import CheckpointError
from raydebm.pretrained import ModelSource

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *(f"w{index}" for index in range(36))]
SIZE = {
    "vocab_size": len(WORDS), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 32,
}  # fmt: skip
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 90868376\n"


def source(folder):
    return ModelSource(called="backbone 'x'", place=folder)


def word_tokenizer(*more, pad="[PAD]", chat_template=None):
    """One token per word, and then the added tokens ``more``."""
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=pad, cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]",
        chat_template=chat_template,
    )  # fmt: skip
    fast.add_tokens(list(more))
    return fast


def special(token):
    return AddedToken(token, special=True)


def llama(**more):
    return LlamaForCausalLM(LlamaConfig(**SIZE | more))


def saved(folder, model):
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    "config",
    [
        BertConfig(**SIZE),
        RobertaConfig(**SIZE),
        MPNetConfig(**SIZE),
        Qwen2Config(**SIZE, num_key_value_heads=1),
        GPTNeoXConfig(**SIZE),
    ],
    ids=lambda config: config.model_type,
)
def test_a_folder_without_a_tokenizer_is_named(config, tmp_path):
    folder = saved(tmp_path, AutoModel.from_config(config))

    with pytest.raises(CheckpointError, match=r"^backbone 'x' has no tokenizer: 0 tokens .*save_pretrained"):
        source(folder).tokenizer()


def test_added_tokens_alone_are_no_tokenizer(tmp_path):
    folder = saved(tmp_path, AutoModel.from_config(Qwen2Config(**SIZE, num_key_value_heads=1)))
    added = {str(index): {"content": f"<tool_{index}>", "special": False} for index in range(1, 9)}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))

    with pytest.raises(CheckpointError, match="has no tokenizer"):
        source(folder).tokenizer()


def test_a_tokenizer_of_words_is_taken(tmp_path):
    word_tokenizer().save_pretrained(saved(tmp_path, BertModel(BertConfig(**SIZE))))

    assert source(tmp_path).tokenizer().get_vocab()["w7"] == WORDS.index("w7")


@pytest.mark.parametrize(
    "damage", [lambda content: content[: len(content) // 2], lambda _: b"", lambda _: POINTER],
    ids=["truncated", "empty", "pointer"],
)  # fmt: skip
def test_torn_weights_are_named(damage, tmp_path):
    file = saved(tmp_path, BertModel(BertConfig(**SIZE))) / "model.safetensors"
    file.write_bytes(damage(file.read_bytes()))

    with pytest.raises(CheckpointError, match=r"^backbone 'x' cannot be read: SafetensorError.*fetched again$"):
        source(tmp_path).model(AutoModel, dtype="auto")


@pytest.mark.parametrize("content", [b"", POINTER], ids=["empty", "pointer"])
def test_torn_weights_of_the_old_format_are_named(content, tmp_path):
    (saved(tmp_path, BertModel(BertConfig(**SIZE))) / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(content)

    with pytest.raises(CheckpointError, match=r"cannot be read: \w+Error.*fetched again$"):
        source(tmp_path).model(AutoModel, dtype="auto")


def test_a_torn_tokenizer_is_named(tmp_path):
    word_tokenizer().save_pretrained(saved(tmp_path, BertModel(BertConfig(**SIZE))))
    (tmp_path / "tokenizer.json").write_bytes(POINTER)

    with pytest.raises(CheckpointError, match=r"^backbone 'x' cannot be read: .*fetched again$"):
        source(tmp_path).tokenizer()


def changed_config(folder, **values):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    return folder


def test_weights_of_another_shape_are_named_with_both(tmp_path):
    folder = changed_config(saved(tmp_path, BertModel(BertConfig(**SIZE))), vocab_size=50)

    with pytest.raises(
        CheckpointError,
        match=r"'embeddings\.word_embeddings\.weight': \(40, 16\) in the file, \(50, 16\) by the config",
    ):
        source(folder).model(AutoModel, dtype="auto")


@pytest.mark.parametrize("model", [BertForMaskedLM, BertLMHeadModel])
def test_an_encoder_is_refused_where_a_decoder_is_needed(model, tmp_path):
    folder = saved(tmp_path, model(BertConfig(**SIZE)))

    with pytest.raises(CheckpointError, match=r"is an encoder \('bert'\).*give a decoder such as Qwen2"):
        source(folder).model(AutoModelForCausalLM, dtype="auto")


def test_a_bert_that_is_a_decoder_is_taken_for_one(tmp_path):
    folder = saved(tmp_path, BertLMHeadModel(BertConfig(**SIZE, is_decoder=True)))

    assert source(folder).model(AutoModelForCausalLM, dtype="auto").config.is_decoder


def test_a_decoder_without_a_language_head_is_refused_where_it_has_to_write(tmp_path):
    folder = saved(tmp_path, LlamaModel(LlamaConfig(**SIZE)))

    with pytest.raises(CheckpointError, match=r"1 weights are missing, such as 'lm_head\.weight'"):
        source(folder).model(AutoModelForCausalLM, dtype="auto")


def test_a_language_head_that_is_the_embedding_is_not_missing(tmp_path):
    folder = saved(tmp_path, llama(tie_word_embeddings=True))

    model = source(folder).model(AutoModelForCausalLM, dtype="auto")
    assert torch.equal(model.lm_head.weight, model.model.embed_tokens.weight)


def test_ids_beyond_the_embedding_are_named():
    with pytest.raises(CheckpointError, match=r"4 ids beyond the 36 rows of its embedding, such as 39 for 'w35'"):
        source("x").check_ids(word_tokenizer(), llama(vocab_size=36))


def test_an_embedding_may_have_more_rows_than_the_tokenizer_ids():
    source("x").check_ids(word_tokenizer(), llama(vocab_size=64))


def test_a_special_token_that_no_text_gets_may_lie_beyond_the_embedding():
    """As in Gemma 3 of one billion, whose tokenizer has a token for images and whose embedding has no row for it."""
    source("x").check_ids(word_tokenizer(special("<image>")), llama())


def test_an_added_word_beyond_the_embedding_is_refused():
    with pytest.raises(CheckpointError, match="such as 40 for '<think>'"):
        source("x").check_ids(word_tokenizer("<think>"), llama())


def test_a_special_token_of_the_chat_template_may_not_lie_beyond_the_embedding():
    tokenizer = word_tokenizer(special("<user>"), chat_template="<user> {{ messages[0]['content'] }}")

    with pytest.raises(CheckpointError, match="such as 40 for '<user>'"):
        source("x").check_ids(tokenizer, llama())


def test_a_padding_token_beyond_the_embedding_is_refused_where_batches_are_padded_with_it():
    tokenizer = word_tokenizer(pad="<pad>")

    source("x").check_ids(tokenizer, llama(), pads=False)
    with pytest.raises(CheckpointError, match="such as 40 for '<pad>'"):
        source("x").check_ids(tokenizer, llama())
