"""Train embedded generators on puzzles that are made on the fly, on one CPU core.

    python tools/embedded/train_generators.py kk-ada --out runs/models --minutes 50

The learning rate depends on the elapsed time, not on the number of steps, so the result depends on the speed of the
machine. The folder always has a complete model, so a training can be stopped at any time.
"""

import argparse
import json
import logging
import math
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from conversations import Encoded, draw_conversation, encode
from packing import PackedBatch, pack
from puzzle_traces import STYLES, Style
from raydebm.identity import seed_for
from raydebm.tasks.knights_knaves.answers import find_answer
from raydebm.tasks.knights_knaves.puzzles import draw_puzzle
from raydebm.tasks.knights_knaves.wording import KNIGHTS
from recipes import GENERATORS, GeneratorRecipe
from sampling import sample_texts
from tokenizer import build_tokenizer, for_generators, token_id

logger = logging.getLogger(__name__)

EASY_SIZES = {2: 0.5, 3: 0.5}
SIZES = {2: 0.18, 3: 0.36, 4: 0.32, 5: 0.07, 6: 0.04, 7: 0.02, 8: 0.01}
EASY_SHARE = 0.12
"""Share of the time in which only puzzles of the easy sizes are used."""
ROWS, WIDTH = 10, 320


def _new_model(recipe: GeneratorRecipe, tokenizer: Tokenizer) -> LlamaForCausalLM:
    """The model with random weights from the recipe's seed."""
    torch.manual_seed(recipe.seed)
    heads = recipe.hidden_size // recipe.head_size
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=math.ceil(tokenizer.get_vocab_size() / 64) * 64,
            hidden_size=recipe.hidden_size,
            num_hidden_layers=recipe.num_layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            intermediate_size=recipe.intermediate_size,
            max_position_embeddings=1536,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=token_id(tokenizer, "<|end|>"),
            pad_token_id=token_id(tokenizer, "[PAD]"),
        )
    )


def save_model(model: Any, folder: Path) -> None:
    """Write float16 weights, and a configuration that loads them as float32, which is faster on CPUs."""
    tied = {"lm_head.weight"}  # the embeddings again
    halves = {name: weight.to(torch.float16) for name, weight in model.state_dict().items() if name not in tied}
    model.save_pretrained(folder, state_dict=halves)
    (folder / "model.safetensors").chmod(0o644)
    config = folder / "config.json"
    fields = json.loads(config.read_text()) | {"dtype": "float32"}
    config.write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")


def _batches(style: Style, tokenizer: Tokenizer, seed: int, progress: Callable[[], float]) -> Callable[[], PackedBatch]:
    """A source of training batches, with easy puzzles at first."""
    rng = random.Random(seed_for("embedded", style.name, seed))

    def draw() -> Encoded:
        sizes = EASY_SIZES if progress() < EASY_SHARE else SIZES
        (size,) = rng.choices(list(sizes), weights=list(sizes.values()))
        return encode(tokenizer, draw_conversation(rng, draw_puzzle(rng, size, part="build"), style))

    pad_id = token_id(tokenizer, "[PAD]")
    waiting: list[Encoded] = []
    return lambda: pack(draw, waiting, rows=ROWS, width=WIDTH, pad_id=pad_id)


def _train(name: str, folder: Path, *, minutes: float, compiled: bool, start: Path | None = None) -> None:
    """Train one generator, log its accuracy on held-out puzzles, and save it to ``folder``.

    Args:
        start: folder of the initial weights. Default: random weights.
    """
    recipe, style = GENERATORS[name], STYLES[name]
    tokenizer = build_tokenizer()
    model: Any = _new_model(recipe, tokenizer)
    if start is not None:
        model.load_state_dict(LlamaForCausalLM.from_pretrained(start).state_dict())
    wrapped = for_generators(tokenizer)
    wrapped.save_pretrained(folder)
    save_model(model, folder)
    body: Any = torch.compile(model.model, dynamic=False) if compiled else model.model
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, weight_decay=0.05, betas=(0.9, 0.98), fused=True
    )
    began = time.monotonic()
    step, tokens, next_report = 0, 0, 60.0

    def elapsed() -> float:
        return time.monotonic() - began

    def progress() -> float:
        return min(1.0, elapsed() / (60 * minutes))

    draw = _batches(style, tokenizer, recipe.seed, progress)
    while progress() < 1:
        batch = draw()
        loss = _loss(model, body, batch)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * schedule(step, progress())
        optimizer.step()
        optimizer.zero_grad()
        step, tokens = step + 1, tokens + batch.ids.numel()
        if elapsed() > next_report:
            next_report = elapsed() + 300
            save_model(model, folder)
            figures = {size: _accuracy(model, wrapped, size, seed=step) for size in (2, 3, 4)}
            logger.info("%s %.1f min, step %d, %.1fM tokens, loss %.4f; accuracy, parsed, characters by size: %s",
                        name, elapsed() / 60, step, tokens / 1e6, loss.item(), figures)  # fmt: skip
    save_model(model, folder)
    report = {"steps": step, "tokens": tokens, "minutes": round(minutes, 1), "seed": recipe.seed}
    (folder / "training.json").write_text(json.dumps(report) + "\n")
    logger.info("%s finished: %s", name, report)


def schedule(step: int, progress: float) -> float:
    """Factor of the learning rate: a warm-up over 200 steps, times a cosine from 1 down to 0.02 over the progress."""
    return min(1.0, (step + 1) / 200) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))


def _loss(model: Any, body: Any, batch: PackedBatch) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        hidden = body(
            input_ids=batch.ids,
            position_ids=batch.positions,
            attention_mask=batch.causal_mask,
            use_cache=False,
        ).last_hidden_state
        wanted = batch.labels[:, 1:]
        learned = wanted >= 0
        logits = model.lm_head(hidden[:, :-1][learned])
    return torch.nn.functional.cross_entropy(logits.float(), wanted[learned])


def _accuracy(model: Any, tokenizer: PreTrainedTokenizerBase, size: int, *, seed: int) -> tuple[float, float, int]:
    """Share of right answers, share of parsed answers, and mean characters per text, on 32 held-out puzzles."""
    rng = random.Random(seed_for("embedded-check", seed, size))
    puzzles = [draw_puzzle(rng, size, part="test") for _ in range(32)]
    model.eval()
    texts = sample_texts(
        model, tokenizer, [[{"role": "user", "content": puzzle.quiz}] for puzzle in puzzles], seed=seed
    )
    model.train()
    answers = [find_answer(text, puzzle.names, KNIGHTS) for text, puzzle in zip(texts, puzzles, strict=True)]
    right = sum(
        answer is not None and tuple(answer.values()) == puzzle.solution
        for answer, puzzle in zip(answers, puzzles, strict=True)
    )
    parsed = sum(answer is not None for answer in answers)
    return round(right / 32, 3), round(parsed / 32, 3), sum(map(len, texts)) // 32


def main() -> None:
    """Train and write the named models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=sorted(GENERATORS))
    parser.add_argument("--out", type=Path, required=True, help="folder of model folders")
    parser.add_argument("--minutes", type=float, help="training time; default: the recipe's")
    parser.add_argument("--start", type=Path, help="folder of model folders to start from; default: random weights")
    parser.add_argument("--no-compile", action="store_true", help="do not use torch.compile")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    for name in arguments.names:
        minutes = arguments.minutes or GENERATORS[name].minutes
        start = arguments.start / name if arguments.start else None
        _train(name, arguments.out / name, minutes=minutes, compiled=not arguments.no_compile, start=start)


if __name__ == "__main__":
    main()
