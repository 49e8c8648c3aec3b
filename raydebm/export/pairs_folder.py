"""The pairs of a run as preference data in the layout that TRL's trainers read (DPO, reward models and others).

::

    README.md                          the data set's card; names the two configurations for ``load_dataset``
    standard/{train,validation}        .parquet and .jsonl; prompt, chosen and rejected are texts
    conversational/{train,validation}  likewise; they are lists of messages, the prompt as the generators got it

Layout: https://huggingface.co/docs/trl/dataset_formats#preference, with explicit prompts. Those trainers join prompt
and completion without anything between them, so a standard prompt is the problem and an empty line.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raydebm.errors import PoolError
from raydebm.export.finished_run import FinishedRun
from raydebm.export.target import fresh_folder, front_matter
from raydebm.records import Candidate, Message, Pair, Problem
from raydebm.tasks import task_of

SPLITS = ("train", "validation")
GAP = "\n\n"
"""Between problem and completion."""
ROWS_AT_ONCE = 2000

_ORIGIN = [
    (name, pa.string()) for name in ("problem_id", "chosen_id", "rejected_id", "chosen_generator", "rejected_generator")
]
_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
STANDARD = pa.schema([("prompt", pa.string()), ("chosen", pa.string()), ("rejected", pa.string()), *_ORIGIN])
CONVERSATIONAL = pa.schema([("prompt", _MESSAGES), ("chosen", _MESSAGES), ("rejected", _MESSAGES), *_ORIGIN])

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """One pair with everything that a trainer needs."""

    problem: Problem
    messages: tuple[Message, ...]
    """The chat that the generators got."""
    chosen: Candidate
    rejected: Candidate

    def standard(self) -> Row:
        """A row of TRL's standard format, with texts."""
        return {
            "prompt": self.problem.prompt + GAP,
            "chosen": self.chosen.text,
            "rejected": self.rejected.text,
            **self._origin(),
        }

    def conversational(self) -> Row:
        """A row of TRL's conversational format, with messages."""
        return {
            "prompt": [{"role": message["role"], "content": message["content"]} for message in self.messages],
            "chosen": [{"role": "assistant", "content": self.chosen.text}],
            "rejected": [{"role": "assistant", "content": self.rejected.text}],
            **self._origin(),
        }

    def _origin(self) -> Row:
        return {
            "problem_id": self.problem.problem_id,
            "chosen_id": self.chosen.candidate_id,
            "rejected_id": self.rejected.candidate_id,
            "chosen_generator": self.chosen.generator,
            "rejected_generator": self.rejected.generator,
        }


FORMATS: Mapping[str, tuple[pa.Schema, Callable[[Preference], Row]]] = {
    "standard": (STANDARD, Preference.standard),
    "conversational": (CONVERSATIONAL, Preference.conversational),
}


def preferences(
    pairs: Iterable[Pair],
    *,
    candidates: Mapping[str, Candidate],
    problems: Mapping[str, Problem],
    messages_of: Callable[[Problem], Sequence[Message]],
) -> Iterator[Preference]:
    """One per pair, in order; candidates and problems are given by id.

    Raises:
        PoolError: a pair names a candidate or problem that is not given, or a candidate without text.
    """
    for pair in pairs:
        if pair.problem_id not in problems:
            raise PoolError(f"pairs name problem {pair.problem_id!r}, which the run lacks; make the pairs again")
        for side in (pair.chosen, pair.rejected):
            if side not in candidates or candidates[side].text is None:
                raise PoolError(
                    f"pair of problem {pair.problem_id!r}: candidate {side!r} is missing or empty; make the pairs again"
                )
        problem = problems[pair.problem_id]
        yield Preference(
            problem=problem,
            messages=tuple(messages_of(problem)),
            chosen=candidates[pair.chosen],
            rejected=candidates[pair.rejected],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsExport:
    """What was written."""

    folder: Path
    num_pairs: Mapping[str, int]
    """By split."""


def export_pairs(
    finished: FinishedRun, out: Path, *, title: str | None = None, license: str | None = None
) -> PairsExport:
    """Write the pairs of a run, all of them, in both formats.

    Raises:
        PoolError: the run has no complete pairs, or they name what it lacks.
        ConfigError: ``out`` is not empty, or cannot be written.
    """
    run, task = finished.run, task_of(finished.recipe.task)
    if run.manifest("pairs") is None:
        raise PoolError(f"{run.uri('pairs')} holds no complete pairs; `raydebm train` makes them")
    pairs = {split: run.pairs(split) for split in SPLITS}
    by_id = {candidate.candidate_id: candidate for candidate in run.candidates()}
    problem_of_id = {row.problem.problem_id: row.problem for row in run.problems()}
    num_pairs = {split: len(pairs[split]) for split in SPLITS}
    card = _pairs_card(finished, num_pairs, title=title or f"{finished.recipe.name} pairs", license=license)
    with fresh_folder(out) as folder:
        for split in SPLITS:
            for name, (schema, row_of) in FORMATS.items():
                examples = preferences(
                    pairs[split], candidates=by_id, problems=problem_of_id, messages_of=task.messages
                )
                _write_rows(map(row_of, examples), schema, folder / name / split)
        (folder / "README.md").write_text(card, encoding="utf-8")
    return PairsExport(folder=out, num_pairs=num_pairs)


def _write_rows(rows: Iterator[Row], schema: pa.Schema, stem: Path) -> None:
    """``<stem>.parquet`` and ``<stem>.jsonl`` with the same rows, a part of them in memory at a time."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    with (
        pq.ParquetWriter(stem.with_suffix(".parquet"), schema) as parquet,
        stem.with_suffix(".jsonl").open("w", encoding="utf-8") as lines,
    ):
        while part := list(islice(rows, ROWS_AT_ONCE)):
            parquet.write_table(pa.Table.from_pylist(part, schema=schema))
            lines.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in part)


def _pairs_card(finished: FinishedRun, num_pairs: Mapping[str, int], *, title: str, license: str | None) -> str:
    """README.md of the data set, with the metadata by which ``load_dataset`` finds the files."""
    recipe = finished.recipe
    metadata = front_matter(
        {
            "license": license or "unknown",
            "tags": ["trl", "preference", "dpo", "reward-model", "raydebm", recipe.task.name],
            "configs": [
                {
                    "config_name": name,
                    **({"default": True} if name == "standard" else {}),
                    "data_files": [{"split": split, "path": f"{name}/{split}.parquet"} for split in SPLITS],
                }
                for name in FORMATS
            ],
        }
    )
    counts = ", ".join(f"{count:,} {split}" for split, count in num_pairs.items())
    generators = ", ".join(f"`{config.name}`" for config in recipe.generators)
    return f"""{metadata}
# {title}

Pairs of answers to `{recipe.task.name}` problems, the better one chosen: {counts}. Written by {generators}, compared
with reference answers, which are not in here. No problem is in both splits.

```python
from datasets import load_dataset

pairs = load_dataset("<this folder, or its name on the hub>", "conversational")
```

Two configurations in TRL's [preference format](https://huggingface.co/docs/trl/dataset_formats#preference): `standard`
(texts; the prompt is the problem and an empty line) and `conversational` (messages; the prompt is the whole chat that
the generators got). The same rows are there as JSON lines.

| column | meaning |
|---|---|
| `prompt`, `chosen`, `rejected` | what trainers read |
| `problem_id` | the problem; several pairs share one |
| `chosen_id`, `rejected_id` | the candidates in the run |
| `chosen_generator`, `rejected_generator` | who wrote them |
"""
