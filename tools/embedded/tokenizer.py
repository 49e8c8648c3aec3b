"""Build the tokenizer of all embedded models.

It is a byte-level BPE, so that it encodes any text, with the puzzles' names and phrases as single tokens: a puzzle of
three people has about 45 tokens. Phrases include their spaces, so that a name is the same token everywhere.

The models depend on the order of the vocabulary: after a change, all of them must be trained again.
"""

import argparse
import pydoc_data.topics
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from raydebm.tasks.knights_knaves.wording import NAMES

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<|user|>", "<|assistant|>", "<|end|>")
NUM_MERGED = 768
"""Vocabulary size of the byte-level part, which is trained on Python's help topics (``pydoc_data``)."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}<|user|>{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}<|assistant|>{{ message['content'] }}<|end|>{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""Chat template without system messages, because these models know only one task."""

_PUZZLE = (
    "A very special island is inhabited only by knights and knaves. Knights always tell the truth, and knaves always "
    "lie. You meet ",
    " inhabitants: ", ", ", ", and ", ". ", " is a knight", " is a knave", " is not a knight", " is not a knave",
    " and ", " or ", " if and only if ", "If ", " then ", '"', '". ', '." ', '," ', '" - ',
    " declared. ", " claimed. ", " mentioned. ", ' was heard saying, "', ' noted, "', ' commented, "', ' remarked, "',
    ' stated, "', ' said, "', ' asserted: "', " said that ", " expressed that ", " told you that ", "As ",
    ' put it, "', "According to ", ', "', "In a statement by ", ': "', "In ", "'s words: \"",
    "So who is a knight and who is a knave?",
)  # fmt: skip
_TRACES = (
    "Try: ", " knight", " knave", ".\n", ": ", " (yes)", " (no)", ": true", ": false", ", knight", ", knave",
    ". Good.\n", ". Bad.\n", "All good.\n", "No more tries. Best guess:\n",
    "- Suppose ", " = knight", " = knave", "; ", "\n", "- ", " says ", " [T]", " [F]", " => possible\n",
    " => impossible\n", "- I stop here.\n", "Answer: ",
    "knight", "knave", " | ", " misfit\n", "all fit\n", "perhaps\n", "=> ",
    ". I think ", "So the answer is ", ".", '{"', '": "', '", "', '"}',
)  # fmt: skip
_FEEDBACK = (
    "Your answer breaks these rules:\n- ", ' said "', '". With your answer that is true, but your answer makes ',
    '". With your answer that is false, but your answer makes ', " a knight.", " a knave.", "\n- ",
    "\nFind an answer that breaks none of them. Use the same output format.",
    "Your answer may be wrong. Check each step again, then give your final answer in the same output format.",
)  # fmt: skip


def build_tokenizer() -> Tokenizer:
    """The tokenizer of the generators, without a post-processor."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=NUM_MERGED,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(pydoc_data.topics.topics.values(), trainer)
    tokenizer.add_tokens([AddedToken(name, single_word=True, normalized=False) for name in NAMES])
    phrases = dict.fromkeys((*_PUZZLE, *_TRACES, *_FEEDBACK))
    tokenizer.add_tokens([AddedToken(phrase, normalized=False) for phrase in phrases])
    return tokenizer


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """The id of a token. Raises KeyError if the vocabulary does not have it."""
    number = tokenizer.token_to_id(token)
    if number is None:
        raise KeyError(token)
    return number


def _wrapped(**settings: Any) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(model_max_length=1536, clean_up_tokenization_spaces=False, **settings)  # type: ignore[no-untyped-call]


def for_generators(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """The tokenizer for chats, with left padding and the chat template."""
    wrapped = _wrapped(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        eos_token="<|end|>",
        unk_token="[UNK]",
        padding_side="left",
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def for_encoder(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """The same vocabulary, with texts of the form ``[CLS] problem [SEP] candidate [SEP]``."""
    own = Tokenizer.from_str(tokenizer.to_str())
    own.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[(token, token_id(own, token)) for token in ("[CLS]", "[SEP]")],
    )
    return _wrapped(
        tokenizer_object=own,
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        unk_token="[UNK]",
    )


def main() -> None:
    """Write the tokenizer's files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder to write tokenizer.json and its settings to")
    for_generators(build_tokenizer()).save_pretrained(parser.parse_args().out)


if __name__ == "__main__":
    main()
