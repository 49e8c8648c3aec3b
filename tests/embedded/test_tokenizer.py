"""The shared tokenizer: any text survives, names are one token, labels follow the pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from raydebm.embedded import GENERATORS, NAMES, embedded_path
from raydebm.tasks.knights_knaves.wording import NAMES as PEOPLE

TOKENIZER = Tokenizer.from_file(str(embedded_path(GENERATORS[0]) / "tokenizer.json"))


@given(st.text())
def test_any_text_survives(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("name", PEOPLE)
def test_a_name_is_the_same_token_everywhere(name: str) -> None:
    token = TOKENIZER.token_to_id(name)
    texts = (name, f'"{name} is a knight," Zoey declared. ', f'{{"{name}": "knight"}}', f"Try: {name} knave.\n")
    assert all(token in TOKENIZER.encode(text).ids for text in texts)


def test_all_models_share_the_vocabulary() -> None:
    vocabularies = [AutoTokenizer.from_pretrained(embedded_path(name)).get_vocab() for name in NAMES]
    assert all(vocabulary == vocabularies[0] for vocabulary in vocabularies)


def test_the_chat_template_writes_what_the_models_were_trained_on() -> None:
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(embedded_path("kk-ada"))
    chat = [
        {"role": "system", "content": "Solve the puzzle."},
        {"role": "user", "content": "P"},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": "F"},
    ]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text == "<|user|>P<|assistant|>A<|end|><|user|>F<|assistant|>"
