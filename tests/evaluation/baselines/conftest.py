"""Tiny models of the right architectures, saved as a user would have them, and pools to score."""

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)

from raydebm.evaluation.baselines.protocol import PoolTexts
from raydebm.records import Candidate, Problem

torch.set_num_threads(1)

MARKS = ["<user>", "<assistant>", "<end>", "ки", "+", "-"]
WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *MARKS, "Step", *(f"{n}:" for n in range(1, 10)), "right", "wrong"]
WORDS += [f"w{index}" for index in range(60)]
TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def word_tokenizer(*, template=None, pad=True):
    """One token per word."""
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    marks = {"pad_token": "[PAD]"} if pad else {}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]", eos_token="[SEP]",
        chat_template=template, **marks,
    )  # fmt: skip


def llama_config(**more):
    return LlamaConfig(
        vocab_size=len(WORDS), max_position_embeddings=128, num_key_value_heads=2, initializer_range=0.3,
        **SMALL, **(IDS | more),
    )  # fmt: skip


def saved(folder, model, tokenizer):
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def seeded(make):
    with torch.random.fork_rng():
        torch.manual_seed(11)
        return make()


@pytest.fixture(scope="session")
def decoder_reward(tmp_path_factory):
    """As Skywork-Reward: a decoder with one logit and a chat template."""
    model = seeded(lambda: LlamaForSequenceClassification(llama_config(num_labels=1)))
    return saved(tmp_path_factory.mktemp("rm") / "decoder", model, word_tokenizer(template=TEMPLATE))


@pytest.fixture(scope="session")
def unpadded_reward(tmp_path_factory):
    """The same weights, with a tokenizer that has no padding token."""
    model = seeded(lambda: LlamaForSequenceClassification(llama_config(num_labels=1)))
    return saved(tmp_path_factory.mktemp("rm") / "unpadded", model, word_tokenizer(template=TEMPLATE, pad=False))


@pytest.fixture(scope="session")
def encoder_reward(tmp_path_factory):
    """As the DeBERTa reward models: an encoder that takes two segments, without a chat template."""
    config = BertConfig(vocab_size=len(WORDS), max_position_embeddings=64, num_labels=2, pad_token_id=0,
                        initializer_range=0.3, **SMALL)  # fmt: skip
    model = seeded(lambda: BertForSequenceClassification(config))
    return saved(tmp_path_factory.mktemp("rm") / "encoder", model, word_tokenizer())


@pytest.fixture(scope="session")
def process_reward(tmp_path_factory):
    """As Math-Shepherd: a causal model that writes + or - after the step token."""
    model = seeded(lambda: LlamaForCausalLM(llama_config()))
    return saved(tmp_path_factory.mktemp("prm") / "causal", model, word_tokenizer())


def make_pool(name, *texts, prompt="w1 w2 w3"):
    return PoolTexts(problem=Problem(task="toy", problem_id=name, prompt=prompt), texts=texts)


@pytest.fixture(scope="session")
def pool():
    return make_pool


@pytest.fixture(scope="session")
def candidate():
    def make(name, *, text="w1 right", problem_id="p", error=None):
        return Candidate(
            candidate_id=name, task="toy", problem_id=problem_id, generator="g", text=text,
            error=error if text is None else None,
        )  # fmt: skip

    return make


@pytest.fixture(scope="session")
def causal_reader(tmp_path_factory):
    """As Qwen2 or Llama: a causal model whose tokenizer puts nothing around a text, with a chat template."""
    model = seeded(lambda: LlamaForCausalLM(llama_config()))
    tokenizer = word_tokenizer(template=TEMPLATE)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B:1")
    return saved(tmp_path_factory.mktemp("reader") / "causal", model, tokenizer)
