"""The shared tokenizer: any text survives, names are one token, labels follow the pieces."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from conversations import IGNORED, draw_conversation, encode
from packing import pack
from puzzle_traces import STYLES, learned, skipped, text_of
from raydebm.embedded import GENERATORS, NAMES, embedded_path
from raydebm.tasks.knights_knaves.puzzles import draw_puzzle
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


@pytest.mark.parametrize("name", sorted(STYLES))
def test_a_conversation_survives_and_the_puzzle_is_not_learned(name: str) -> None:
    rng = random.Random(4)
    for _ in range(10):
        puzzle = draw_puzzle(rng, 3, part="build")
        pieces = draw_conversation(rng, puzzle, STYLES[name])
        encoded = encode(TOKENIZER, pieces)
        assert TOKENIZER.decode(encoded.ids, skip_special_tokens=False) == text_of(pieces)
        quiz = TOKENIZER.encode(puzzle.quiz).ids
        assert encoded.labels[: len(quiz) + 2] == [IGNORED] * (len(quiz) + 2)
        assert encoded.labels[-1] == TOKENIZER.token_to_id("<|end|>")


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


def test_packed_rows_hold_whole_sequences_and_attend_within_them() -> None:
    sequences = iter([encode(TOKENIZER, [*skipped("P"), *learned("A" * n)]) for n in (3, 2, 9, 1, 9, 9, 9, 9, 9, 9)])
    waiting: list[object] = []
    batch = pack(lambda: next(sequences), waiting, rows=1, width=10, pad_id=0)  # type: ignore[arg-type]
    starts = (batch.positions[0] == 0).nonzero().flatten().tolist()
    first = len(encode(TOKENIZER, [*skipped("P"), *learned("AAA")]).ids)
    assert starts[:2] == [0, first]
    assert batch.causal_mask[0, 0, first, first]
    assert not batch.causal_mask[0, 0, first, first - 1]
    assert not batch.causal_mask[0, 0, 0, 1]
