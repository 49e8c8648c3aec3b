"""Measure the embedded generators on puzzles that they were not trained on, and write the figures into the model card.

    python tools/embedded/accuracy.py

Pass 1 is the puzzle alone. Pass 2 is the chat after a wrong first answer, with the feedback of triage.
"""

import argparse
import json
import logging
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from conversations import constraint_feedback
from puzzle_traces import answer_json
from raydebm import embedded
from raydebm.embedded import GENERATORS
from raydebm.identity import seed_for
from raydebm.records import Message
from raydebm.tasks.knights_knaves.answers import find_answer
from raydebm.tasks.knights_knaves.logic import Assignment
from raydebm.tasks.knights_knaves.puzzles import Puzzle, make_puzzle
from raydebm.tasks.knights_knaves.wording import KNIGHTS
from sampling import sample_texts

logger = logging.getLogger(__name__)

SIZES = range(2, 7)
NUM_SAMPLES = 8
BATCH = 160
SEED = 4099
"""Seed of the evaluated puzzles; no recipe uses it."""
CARD_MARKS = ("<!-- accuracy: written by tools/embedded/accuracy.py -->", "<!-- end of accuracy -->")

Answers = list[list[Assignment | None]]
"""Answers by puzzle, then sample. None for a text without an answer."""


def _interval(shares: Sequence[float], *, rounds: int = 1000) -> tuple[float, float]:
    """95 % interval of the mean by bootstrap over problems."""
    rng = random.Random(seed_for("embedded-interval", len(shares)))
    means = sorted(sum(rng.choices(shares, k=len(shares))) / len(shares) for _ in range(rounds))
    return means[int(0.025 * rounds)], means[int(0.975 * rounds) - 1]


def figure(shares: Sequence[float]) -> dict[str, Any]:
    """Mean over problems with its interval, as stored in accuracy.json."""
    low, high = _interval(shares)
    return {
        "mean": round(sum(shares) / len(shares), 3),
        "low": round(low, 3),
        "high": round(high, 3),
        "num_problems": len(shares),
    }


def _share_right(answers: Sequence[Assignment | None], solution: Assignment) -> float:
    return sum(answer == solution for answer in answers) / len(answers)


class MeasuredModel:
    """A generator with the processor time of its sampling, which other work on the machine hardly affects."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder)
        self.core_seconds = 0.0
        self.num_texts = 0
        self.num_tokens = 0

    def answers(self, puzzles: Sequence[Puzzle], chats: Sequence[Sequence[Message]], *, seed: int) -> Answers:
        """Sample answers to every puzzle, in the order of the puzzles."""
        rows = [(place, chat) for place, chat in enumerate(chats) for _ in range(NUM_SAMPLES)]
        answers: Answers = [[] for _ in puzzles]
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            began = time.process_time()
            texts = sample_texts(
                self.model, self.tokenizer, [chat for _, chat in batch], seed=seed_for("embedded", seed, start)
            )
            self.core_seconds += time.process_time() - began
            self.num_texts += len(texts)
            self.num_tokens += sum(len(ids) for ids in self.tokenizer(texts, add_special_tokens=False)["input_ids"])
            for (place, _), text in zip(batch, texts, strict=True):
                answer = find_answer(text, puzzles[place].names, KNIGHTS)
                answers[place].append(None if answer is None else tuple(answer.values()))
        return answers


def _measure(folder: Path, puzzles: Sequence[Puzzle], *, seed: int) -> tuple[dict[str, Any], Answers]:
    """Figures of one generator on puzzles of one size, and its first-pass answers."""
    generator = MeasuredModel(folder)
    first = generator.answers(puzzles, [_question(puzzle) for puzzle in puzzles], seed=seed)
    figures: dict[str, Any] = {
        "pass_1": figure(
            [_share_right(answers, puzzle.solution) for puzzle, answers in zip(puzzles, first, strict=True)]
        ),
        "parsed": round(
            sum(answer is not None for answers in first for answer in answers) / len(first) / NUM_SAMPLES, 3
        ),
        "tokens_per_text": round(generator.num_tokens / generator.num_texts),
        "texts_per_core_s": round(generator.num_texts / generator.core_seconds, 1),
    }
    failed = [
        (puzzle, wrong) for puzzle, answers in zip(puzzles, first, strict=True) if (wrong := _a_wrong(puzzle, answers))
    ]
    if failed:
        again = [puzzle for puzzle, _ in failed]
        second = generator.answers(again, [_feedback_chat(puzzle, wrong) for puzzle, wrong in failed], seed=seed + 1)
        figures["pass_2"] = figure(
            [_share_right(answers, puzzle.solution) for puzzle, answers in zip(again, second, strict=True)]
        )
        figures["pass_1_same_problems"] = figure(
            [_share_right(answers, puzzle.solution) for puzzle, answers in zip(puzzles, first, strict=True)
             if _a_wrong(puzzle, answers)]
        )  # fmt: skip
    return figures, first


def _question(puzzle: Puzzle) -> list[Message]:
    return [{"role": "user", "content": puzzle.quiz}]


def _a_wrong(puzzle: Puzzle, answers: Sequence[Assignment | None]) -> Assignment | None:
    return next((answer for answer in answers if answer is not None and answer != puzzle.solution), None)


def _feedback_chat(puzzle: Puzzle, wrong: Assignment) -> list[Message]:
    return [
        *_question(puzzle),
        {"role": "assistant", "content": answer_json(puzzle, wrong)},
        {"role": "user", "content": constraint_feedback(puzzle, wrong)},
    ]


def _measure_all(folder: Path, *, num_problems: int) -> dict[str, Any]:
    """Measure all generators on all sizes, and for each size the mean and the oracle over all first passes."""
    report: dict[str, Any] = {"seed": SEED, "num_samples": NUM_SAMPLES, "generators": {}, "pool": {}}
    for size in SIZES:
        puzzles = [make_puzzle(size, part="test", seed=SEED, index=index) for index in range(num_problems)]
        pooled: Answers = [[] for _ in puzzles]
        for name in GENERATORS:
            figures, first = _measure(folder / name, puzzles, seed=seed_for("embedded", name, size))
            report["generators"].setdefault(name, {})[str(size)] = figures
            for answers, own in zip(pooled, first, strict=True):
                answers += own
            logger.info("%s, %d people: %s", name, size, figures)
        report["pool"][str(size)] = {
            "random": figure([_share_right(a, p.solution) for p, a in zip(puzzles, pooled, strict=True)]),
            "oracle": figure([float(p.solution in a) for p, a in zip(puzzles, pooled, strict=True)]),
        }
    return report


def tables(report: dict[str, Any]) -> str:
    """The figures as Markdown: share of right answers in percent, with 95 % intervals."""
    sizes = list(report["pool"])
    num_problems = report["pool"][sizes[0]]["oracle"]["num_problems"]
    head = f"| | {' | '.join(f'{size} people' for size in sizes)} |\n|---|{'---|' * len(sizes)}"
    lines = [
        f"Share of right answers in percent, with 95 % intervals by bootstrap over problems; {num_problems} problems "
        f"per size (seed {report['seed']}), {report['num_samples']} samples each at temperature 0.7, top-p 0.95.",
        "",
        "First pass:",
        "",
        head,
    ]
    for name, by_size in report["generators"].items():
        lines.append(f"| {name} | {' | '.join(_cell(by_size[size]['pass_1']) for size in sizes)} |")
    lines += [
        f"| all four, {row} | {' | '.join(_cell(report['pool'][size][row]) for size in sizes)} |"
        for row in ("random", "oracle")
    ]
    lines += [
        "",
        'Second pass, on the n problems with a wrong first answer; "was" is the first pass on the same:',
        "",
        head,
    ]
    for name, by_size in report["generators"].items():
        cells = [_cell_pair(by_size[size]) for size in sizes]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "Texts with an answer, in percent; mean tokens per text:", "", head]
    for name, by_size in report["generators"].items():
        cells = [f"{100 * by_size[size]['parsed']:.0f}; {by_size[size]['tokens_per_text']}" for size in sizes]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", f"Texts sampled in one second of one core, in batches of {BATCH}:", "", head]
    lines += [
        f"| {name} | {' | '.join(str(by_size[size]['texts_per_core_s']) for size in sizes)} |"
        for name, by_size in report["generators"].items()
    ]
    return "\n".join(lines)


def _cell(value: dict[str, Any]) -> str:
    return f"{100 * value['mean']:.0f} ({100 * value['low']:.0f}-{100 * value['high']:.0f})"


def _cell_pair(figures: dict[str, Any]) -> str:
    """Both passes on the same problems, unless fewer than five have a second pass: too few for an interval."""
    if figures.get("pass_2", {}).get("num_problems", 0) < 5:
        return "too few"
    before = 100 * figures["pass_1_same_problems"]["mean"]
    return f"{_cell(figures['pass_2'])}, was {before:.0f}, n={figures['pass_2']['num_problems']}"


def _write_card(card: Path, text: str) -> None:
    """Write the tables between the two marks of the model card."""
    before, _, rest = card.read_text().partition(CARD_MARKS[0])
    after = rest.partition(CARD_MARKS[1])[2]
    card.write_text(f"{before}{CARD_MARKS[0]}\n\n{text}\n\n{CARD_MARKS[1]}{after}")


def main() -> None:
    """Measure the models, and write their card."""
    home = Path(embedded.__file__).parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=home / "models", help="folder of model folders")
    parser.add_argument("--problems", type=int, default=60, help="problems per size")
    parser.add_argument("--card", type=Path, default=home / "MODEL_CARD.md", help="model card to write the tables into")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    report = _measure_all(arguments.models, num_problems=arguments.problems)
    (arguments.models / "accuracy.json").write_text(json.dumps(report, indent=1) + "\n")
    _write_card(arguments.card, tables(report))


if __name__ == "__main__":
    main()
