"""Pretrain the embedded encoder on puzzles with right and wrong solutions.

    python tools/embedded/train_encoder.py --out runs/models --start runs/models/kk-ada

Texts have the scorer's form, ``[CLS] puzzle [SEP] solution [SEP]``. There are two objectives, as in BERT: predict
masked tokens, and decide from ``[CLS]`` whether the solution belongs to the puzzle or was written for misread
statements. The prediction heads are discarded; adapters learn the energies.
"""

import argparse
import json
import logging
import math
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM, ModernBertConfig, ModernBertForMaskedLM

from conversations import IGNORED, Encoded
from packing import PackedBatch, pack
from puzzle_traces import STYLES, draw_plan, text_of
from raydebm.identity import seed_for
from raydebm.tasks.knights_knaves.logic import Assignment, Statement, is_true
from raydebm.tasks.knights_knaves.puzzles import Puzzle, draw_puzzle
from recipes import ENCODER, EncoderRecipe
from tokenizer import build_tokenizer, for_encoder, token_id
from train_generators import save_model, schedule

logger = logging.getLogger(__name__)

MISREAD_SHARE = 0.5
CLS_WEIGHT = 0.5
VERDICTS = {False: -200, True: -201}
"""Labels at ``[CLS]``, less than every token id and the ignored label."""
SIZES = {2: 0.2, 3: 0.4, 4: 0.3, 5: 0.06, 6: 0.04}
ROWS, WIDTH = 10, 320


def _new_encoder(recipe: EncoderRecipe, tokenizer: Tokenizer) -> ModernBertForMaskedLM:
    """The encoder and its prediction head, with random weights from the recipe's seed."""
    torch.manual_seed(recipe.seed)
    pad, start, end = (token_id(tokenizer, token) for token in ("[PAD]", "[CLS]", "[SEP]"))
    settings: dict[str, Any] = {
        "vocab_size": math.ceil(tokenizer.get_vocab_size() / 64) * 64,
        "hidden_size": recipe.hidden_size,
        "num_hidden_layers": recipe.num_layers,
        "num_attention_heads": recipe.num_heads,
        "intermediate_size": recipe.intermediate_size,
        "max_position_embeddings": 2048,
        "pad_token_id": pad,
        "bos_token_id": start,
        "cls_token_id": start,
        "eos_token_id": end,
        "sep_token_id": end,
        # Texts are short; a window of 128 tokens would hide the puzzle from the answer.
        "global_attn_every_n_layers": 1,
        # As in the generator whose weights initialise the encoder.
        "hidden_activation": "silu",
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        },
        "attn_implementation": "sdpa",
    }
    return ModernBertForMaskedLM(ModernBertConfig(**settings))


def _transplant(model: ModernBertForMaskedLM, generator: LlamaForCausalLM) -> None:
    """Initialise the encoder with a generator's embeddings and first layers, which can already look up and copy names.

    The architectures differ in their norms (ModernBERT's subtract the mean) and their input: ModernBERT normalises the
    embeddings, so the weights of that norm get their typical length, and the first attention's weights absorb its norm.
    """
    source, target = generator.model.state_dict(), model.model.state_dict()
    embeddings = source["embed_tokens.weight"]
    length = embeddings.pow(2).mean().sqrt()
    moved = {
        "embeddings.tok_embeddings.weight": embeddings,
        "embeddings.norm.weight": length.expand(embeddings.shape[1]),
    }
    for layer in range(model.config.num_hidden_layers):
        old, new = f"layers.{layer}.", f"layers.{layer}."
        attention = torch.cat([source[f"{old}self_attn.{part}_proj.weight"] for part in "qkv"])
        before = source[f"{old}input_layernorm.weight"]
        if layer == 0:
            attention = attention * before / length
        else:
            moved[f"{new}attn_norm.weight"] = before
        moved[f"{new}attn.Wqkv.weight"] = attention
        moved[f"{new}attn.Wo.weight"] = source[f"{old}self_attn.o_proj.weight"]
        moved[f"{new}mlp_norm.weight"] = source[f"{old}post_attention_layernorm.weight"]
        moved[f"{new}mlp.Wi.weight"] = torch.cat([source[f"{old}mlp.{part}_proj.weight"] for part in ("gate", "up")])
        moved[f"{new}mlp.Wo.weight"] = source[f"{old}mlp.down_proj.weight"]
    model.model.load_state_dict(target | {name: weight.clone() for name, weight in moved.items()})


def _misread(rng: random.Random, puzzle: Puzzle) -> Puzzle:
    """The puzzle with a wrong solution, and with statements whose atoms or operators are misread so that it fits."""
    wrong = puzzle.solution
    while wrong == puzzle.solution:
        flips = rng.choice((1, 1, 2, len(wrong)))
        flipped = rng.sample(range(len(wrong)), min(flips, len(wrong)))
        wrong = tuple(knight != (person in flipped) for person, knight in enumerate(wrong))
    statements = tuple(_misread_statement(rng, said, wrong, person) for person, said in enumerate(puzzle.statements))
    return replace(puzzle, solution=wrong, statements=statements)


def _misread_statement(rng: random.Random, said: Statement, wrong: Assignment, person: int) -> Statement:
    statement = said
    while is_true(statement, wrong) != wrong[person]:
        operator, *parts = said
        if operator in ("telling-truth", "lying"):
            statement = _other_atom(said)
        elif operator == "not":
            statement = parts[0]
        else:
            misread_parts = [_other_atom(part) if rng.random() < 0.4 else part for part in parts]
            statement = (operator if rng.random() < 0.7 else rng.choice(("and", "or", "->", "<=>")), *misread_parts)
    return statement


def _other_atom(atom: Statement) -> Statement:
    return ("lying" if atom[0] == "telling-truth" else "telling-truth", atom[1])


def _draw_text(rng: random.Random, tokenizer: Tokenizer) -> tuple[list[int], bool]:
    """Token ids of a puzzle with a solution, and True if the solution was written for misread statements."""
    (size,) = rng.choices(list(SIZES), weights=list(SIZES.values()))
    puzzle = draw_puzzle(rng, size, part="build")
    style = rng.choice(list(STYLES.values()))
    is_misread = rng.random() < MISREAD_SHARE
    told = _misread(rng, puzzle) if is_misread else puzzle
    solution = text_of(style.write(told, draw_plan(rng, told, style), rng))
    encoding = tokenizer.encode(puzzle.quiz, solution)
    return encoding.ids, is_misread


def _masked(rng: random.Random, ids: list[int], mask_id: int, share: float) -> Encoded:
    """Replace a share of the tokens by ``[MASK]``, with the tokens as labels, except for the first and the last."""
    labels = [
        token if 0 < place < len(ids) - 1 and rng.random() < share else IGNORED for place, token in enumerate(ids)
    ]
    return Encoded([mask_id if label >= 0 else token for token, label in zip(ids, labels, strict=True)], labels)


def _train(folder: Path, recipe: EncoderRecipe, *, start: Path, minutes: float, compiled: bool) -> None:
    """Train the encoder and save it to ``folder``, without the prediction heads.

    Args:
        start: folder of the generator whose first layers initialise the encoder.
    """
    wrapped = for_encoder(build_tokenizer())
    wrapped.save_pretrained(folder)
    tokenizer = wrapped.backend_tokenizer
    model: Any = _new_encoder(recipe, tokenizer)
    _transplant(model, LlamaForCausalLM.from_pretrained(start))
    verdict = torch.nn.Sequential(torch.nn.LayerNorm(recipe.hidden_size), torch.nn.Linear(recipe.hidden_size, 2))
    body: Any = torch.compile(model.model, dynamic=False) if compiled else model.model
    parameters = [*model.parameters(), *verdict.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=recipe.learning_rate, weight_decay=0.05, betas=(0.9, 0.98), fused=True)
    draw = _batches(tokenizer, recipe)
    began, step, tokens, next_report = time.monotonic(), 0, 0, 60.0
    averages = [0.0, 0.0, 0.0]
    while (progress := (time.monotonic() - began) / (60 * minutes)) < 1:
        batch = draw()
        figures = _step(model, body, verdict, batch)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * schedule(step, progress)
        optimizer.step()
        optimizer.zero_grad()
        step, tokens = step + 1, tokens + batch.ids.numel()
        averages = [0.98 * old + 0.02 * new for old, new in zip(averages, figures, strict=True)]
        if time.monotonic() - began > next_report:
            next_report += 60
            save_model(model.model, folder)
            logger.info("step %d, %.1fM tokens; masked loss %.3f, verdict loss %.3f, verdict accuracy %.3f",
                        step, tokens / 1e6, *averages)  # fmt: skip
    save_model(model.model, folder)
    report = {"steps": step, "tokens": tokens, "minutes": round(minutes, 1), "seed": recipe.seed}
    (folder / "training.json").write_text(json.dumps(report) + "\n")
    logger.info("finished: %s", report)


def _batches(tokenizer: Tokenizer, recipe: EncoderRecipe) -> Callable[[], PackedBatch]:
    """A source of batches whose labels at ``[CLS]`` are ``VERDICTS``, by whether the puzzle was misread."""
    rng = random.Random(seed_for("embedded", ENCODER, recipe.seed))
    mask_id, pad_id = token_id(tokenizer, "[MASK]"), token_id(tokenizer, "[PAD]")
    waiting: list[Encoded] = []

    def draw() -> Encoded:
        ids, is_misread = _draw_text(rng, tokenizer)
        hidden = _masked(rng, ids, mask_id, recipe.mask_share if rng.random() < 0.6 else 0.05)
        return Encoded(hidden.ids, [VERDICTS[is_misread], *hidden.labels[1:]])

    return lambda: pack(draw, waiting, rows=ROWS, width=WIDTH, pad_id=pad_id)


def _step(model: Any, body: Any, verdict: torch.nn.Module, batch: PackedBatch) -> tuple[float, float, float]:
    """Add the gradients of both objectives, and return both losses and the share of right verdicts."""
    with torch.autocast("cpu", torch.bfloat16):
        hidden = body(
            input_ids=batch.ids, position_ids=batch.positions, attention_mask=batch.same_sequence
        ).last_hidden_state
        hidden_tokens = batch.labels >= 0
        logits = model.decoder(model.head(hidden[hidden_tokens]))
        starts = batch.labels <= VERDICTS[False]
        verdicts = verdict(hidden[starts])
    token_loss = torch.nn.functional.cross_entropy(logits.float(), batch.labels[hidden_tokens])
    wanted = VERDICTS[False] - batch.labels[starts]
    verdict_loss = torch.nn.functional.cross_entropy(verdicts.float(), wanted)
    torch.autograd.backward(token_loss + CLS_WEIGHT * verdict_loss)
    accuracy = (verdicts.argmax(-1) == wanted).float().mean()
    return token_loss.item(), verdict_loss.item(), accuracy.item()


def main() -> None:
    """Train and write the encoder."""
    recipe = EncoderRecipe()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of model folders")
    parser.add_argument("--start", type=Path, required=True, help="folder of the generator to start from: kk-ada")
    parser.add_argument("--minutes", type=float, default=recipe.minutes, help="training time")
    parser.add_argument("--no-compile", action="store_true", help="do not use torch.compile")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    _train(
        arguments.out / ENCODER,
        recipe,
        start=arguments.start,
        minutes=arguments.minutes,
        compiled=not arguments.no_compile,
    )


if __name__ == "__main__":
    main()
