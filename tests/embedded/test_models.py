"""The shipped models: they load, fit in the package, write answers, and rank as the card says."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

from raydebm import embedded
from raydebm.embedded import ENCODER, GENERATORS, NAMES, embedded_path
from raydebm.errors import CheckpointError, UnknownNameError
from raydebm.tasks.knights_knaves.answers import find_answer
from raydebm.tasks.knights_knaves.puzzles import make_puzzle
from raydebm.tasks.knights_knaves.wording import KNIGHTS
from sampling import sample_texts

NUM_PUZZLES = 40


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((embedded_path(ENCODER).parent / "accuracy.json").read_text())
    return loaded


@pytest.fixture(scope="module")
def outcomes() -> dict[str, list[bool | None]]:
    """By generator: right, wrong or no answer on small puzzles that neither training nor the card's figures used."""
    torch.set_num_threads(1)
    puzzles = [make_puzzle(2 + index % 2, part="test", seed=2718, index=index) for index in range(NUM_PUZZLES)]
    chats = [[{"role": "user", "content": puzzle.quiz}] for puzzle in puzzles]
    by_generator: dict[str, list[bool | None]] = {}
    for name in (GENERATORS[0], GENERATORS[-1]):
        model = AutoModelForCausalLM.from_pretrained(embedded_path(name)).eval()
        texts = sample_texts(model, AutoTokenizer.from_pretrained(embedded_path(name)), chats, seed=1, max_tokens=192)
        answers = [find_answer(text, puzzle.names, KNIGHTS) for text, puzzle in zip(texts, puzzles, strict=True)]
        by_generator[name] = [
            None if answer is None else tuple(answer.values()) == puzzle.solution
            for answer, puzzle in zip(answers, puzzles, strict=True)
        ]
    return by_generator


def test_an_unknown_model_is_named_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'kk-ada'"):
        embedded_path("kk-adda")


def test_missing_files_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(embedded, "_FOLDER", tmp_path)
    with pytest.raises(CheckpointError, match="kk-ada"):
        embedded_path("kk-ada")


def test_everything_together_stays_small() -> None:
    size = sum(file.stat().st_size for file in embedded_path(ENCODER).parent.rglob("*") if file.is_file())
    assert size <= 25e6


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_stored_in_half_and_loaded_in_single_precision(name: str) -> None:
    model = AutoModel.from_pretrained(embedded_path(name))
    weights = (embedded_path(name) / "model.safetensors").stat().st_size
    assert model.dtype == torch.float32
    assert weights < 2.2 * model.num_parameters()


def test_the_encoder_has_the_modules_that_adapters_attach_to() -> None:
    encoder = AutoModel.from_pretrained(embedded_path(ENCODER))
    names = {name.rpartition(".")[2] for name, _ in encoder.named_modules()}
    assert {"Wqkv", "Wo", "Wi"} <= names
    assert encoder.config.max_position_embeddings >= 1536


def test_the_encoder_tells_texts_apart() -> None:
    """Pooled outputs of trained weights differ by much more than rounding when one role is changed."""
    tokenizer = AutoTokenizer.from_pretrained(embedded_path(ENCODER))
    encoder = AutoModel.from_pretrained(embedded_path(ENCODER)).eval()
    puzzle = make_puzzle(3, part="test", seed=1, index=0)
    rng = random.Random(0)
    texts = [f'{{"{puzzle.names[0]}": "{rng.choice(("knight", "knave"))}"}}' for _ in range(8)]
    assert len(set(texts)) == 2
    with torch.inference_mode():
        inputs = tokenizer([puzzle.quiz] * 8, texts, return_tensors="pt", padding=True)
        pooled = encoder(**inputs).last_hidden_state[:, 0]
    same, other = texts.index(texts[0], 1), next(i for i, text in enumerate(texts) if text != texts[0])
    assert (pooled[0] - pooled[same]).norm() < 0.01 * (pooled[0] - pooled[other]).norm()


def test_the_strongest_answers_most_small_puzzles(outcomes: dict[str, list[bool | None]]) -> None:
    assert sum(outcome is not None for outcome in outcomes["kk-ada"]) >= 0.85 * NUM_PUZZLES


def test_the_card_names_every_model(figures: dict[str, Any]) -> None:
    card = (Path(embedded.__file__).parent / "MODEL_CARD.md").read_text()
    assert all(f"`{name}`" in card for name in NAMES)
    assert set(figures["generators"]) == set(GENERATORS)
