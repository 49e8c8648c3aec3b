"""Recorded answers for the replay of stopping rules: which answers are equal, which are right, what each cost."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from raydebm.evaluation.results.stopping import RecordedAnswers
from raydebm.run.json_lines import read_json_lines
from raydebm.tasks.math500.inequalities import as_union
from raydebm.tasks.math500.latex import normal_form

GSM8K_MODELS = (
    "gemma-2-2b-it", "Phi-3.5-mini-instruct", "Qwen2-7B-Instruct", "Meta-Llama-3-8B-Instruct",
    "Meta-Llama-3.1-8B-Instruct", "Yi-1.5-9B-Chat", "gemma-2-9b-it",
)  # fmt: skip
"""Those of configs/gsm8k_recorded.yaml."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A data set with its budget."""

    name: str
    answers: tuple[RecordedAnswers, ...]
    max_samples: int
    waves: tuple[int, ...]
    unit: str = "tokens"

    @property
    def problem_ids(self) -> list[str]:
        return list(dict.fromkeys(pool.problem_id for pool in self.answers))


def read_pools(data: Path) -> Iterator[Pool]:
    """The short pools first, because they are replayed in no time."""
    gsm8k = _by_problem(data / "gsm8k" / "pool_zeroeval.jsonl.gz", _number_key, models=GSM8K_MODELS)
    yield Pool(name="GSM8K, seven authors", answers=gsm8k, max_samples=7, waves=(2, 2, 3), unit="characters")
    gym = _by_problem(data / "reasoning_gym" / "pool_easy.jsonl.gz", _text_key)
    yield Pool(name="reasoning gym, six authors", answers=gym, max_samples=18, waves=(3, 3, 4, 8), unit="characters")
    recorded: dict[str, list[RecordedAnswers]] = {}
    for name, pool in read_boinf(data, _latex_key):
        recorded.setdefault(NAMES.get(name, "AIME 2024 and 2025"), []).append(pool)
    for budget, waves in ((32, (4, 4, 8, 16)), (64, (4, 4, 8, 16, 32))):
        for name, answers in recorded.items():
            yield Pool(name=f"{name}, N = {budget}", answers=tuple(answers), max_samples=budget, waves=waves)


def read_boinf(data: Path, key: Callable[[str, str | None], str | None]) -> Iterator[tuple[str, RecordedAnswers]]:
    """The data set and the answers of every (problem, author); right is what has the key of the reference answer."""
    for _, row in read_json_lines(str(data / "stopping" / "boinf_answers.jsonl.gz")):
        name = row["problem_id"].split("/")[0]
        keys, gold = tuple(key(name, answer) for answer, _ in row["answers"]), key(name, row["gold"])
        yield (
            name,
            RecordedAnswers(
                problem_id=row["problem_id"],
                group=row["model"],
                answers=keys,
                correct=np.array([float(answer is not None and answer == gold) for answer in keys]),
                tokens=np.array([tokens for _, tokens in row["answers"]], dtype=np.float64),
            ),
        )


NAMES = {"math500": "MATH-500", "gpqa_diamond": "GPQA diamond"}


@cache
def _latex_key(name: str, answer: str | None) -> str | None:
    if answer in (None, "", "unextractable"):
        return None
    return normal_form(as_union(answer)) if name == "math500" else answer


def plain_key(_: str, answer: str | None) -> str | None:
    """Answers as text, as earlier replays compared them."""
    return answer or None


def _by_problem(
    path: Path, key: Callable[[object], str | None], *, models: Sequence[str] = ()
) -> tuple[RecordedAnswers, ...]:
    """One pool per problem with the answers of all authors; what an answer costs is the length of its text."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for _, row in read_json_lines(str(path)):
        if not models or row["model"] in models:
            rows.setdefault(row["problem_id"], []).append(row)
    return tuple(
        RecordedAnswers(
            problem_id=problem_id,
            group="all",
            answers=tuple(key(row["answer"]) for row in problem_rows),
            correct=np.array(
                [np.nan if row["correct"] is None else float(bool(row["correct"])) for row in problem_rows]
            ),
            tokens=np.array([len(str(row["text"] or "")) for row in problem_rows], dtype=np.float64),
        )
        for problem_id, problem_rows in rows.items()
    )


def _number_key(answer: object) -> str | None:
    text = str(answer or "").replace(",", "").strip("$. ")
    try:
        return repr(float(text))
    except ValueError:
        return text or None


def _text_key(answer: object) -> str | None:
    return " ".join(str(answer or "").split()).casefold() or None
