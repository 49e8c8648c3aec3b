"""What a language model that only reads the answers says about them: readings of a recorded pool, and a table.

    python benchmarks/reader_signals.py read configs/gsm8k_recorded.yaml MODEL readings/gsm8k.parquet --problems 200
    python benchmarks/reader_signals.py table configs/gsm8k_recorded.yaml readings/gsm8k.parquet

``read`` writes after every few problems and goes on where it stopped. Problems come in the order of their hashed ids,
so that the first 200 are a random part of all. Beside the readings it keeps frozen features of each text (mean and last
eight tokens' mean, of the last layer and of the middle one). ``table`` evaluates what is there.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from reader_table import SIGNALS, labelled, tables
from recorded_pools import RecordedPool, recorded_pools

from raydebm.baselines.reader import Reader
from raydebm.baselines.readings import Reading
from raydebm.config import ReaderBaseline, load_recipe
from raydebm.scorer.batching import MicroBatch

PROBLEMS_PER_WRITE = 4
LAST_TOKENS = 8


class FeatureReader(Reader):
    """A reader that also keeps the states of its forward passes, pooled."""

    def __init__(self, config: ReaderBaseline) -> None:
        super().__init__(config)
        model: Any = self._loaded.model.base_model
        middle = len(model.layers) * 2 // 3
        self._states: dict[str, torch.Tensor] = {}
        model.layers[middle - 1].register_forward_hook(self._hook("middle"))
        model.norm.register_forward_hook(self._hook("last"))
        self.features: list[dict[str, Any]] = []

    def _hook(self, name: str) -> Any:
        def keep(_module: Any, _given: Any, output: Any) -> None:
            self._states[name] = output[0] if isinstance(output, tuple) else output

        return keep

    def read(self, texts: Sequence[tuple[str, str]]) -> list[Reading]:
        self.features, self._rows = [{} for _ in texts], self._inputs(texts)
        return super().read(texts)

    def _read(self, batch: MicroBatch, rows: Sequence[Any]) -> list[Reading]:
        found = super()._read(batch, rows)
        for row_index, row in enumerate(rows):
            place = next(
                place
                for place, own in enumerate(self._rows)
                if own.start == row.start and own.ids == row.ids and not self.features[place]
            )
            self.features[place] = {
                f"{name}_{part}": states[row_index, start : row.end].float().mean(0).half().cpu().numpy()
                for name, states in self._states.items()
                for part, start in (("mean", row.start), ("tail", max(row.start, row.end - LAST_TOKENS)))
            }
        return found


def read(given: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    recipe = load_recipe(given.recipe)
    target = Path(given.readings)
    rows = pq.read_table(target).to_pylist() if target.exists() else []
    done = {row["problem_id"] for row in rows}
    waiting = [pool for pool in recorded_pools(recipe, most=given.problems) if pool.problem.problem_id not in done]
    print(f"{len(done)} problems are read, {len(waiting)} to go", flush=True)
    reader = FeatureReader(
        ReaderBaseline(
            name="reader", model=given.model, dtype=given.dtype, max_length=given.max_length,
            input_format=given.input_format, micro_batch_tokens=given.micro_batch_tokens,
        )
    )  # fmt: skip
    for start in range(0, len(waiting), PROBLEMS_PER_WRITE):
        rows += _rows_of(reader, waiting[start : start + PROBLEMS_PER_WRITE])
        _write(rows, target)
        count = min(start + PROBLEMS_PER_WRITE, len(waiting))
        print(f"{time.strftime('%H:%M:%S')} {count} of {len(waiting)}", flush=True)


def _rows_of(reader: FeatureReader, pools: Sequence[RecordedPool]) -> list[dict[str, Any]]:
    candidates = [(pool, candidate) for pool in pools for candidate in pool.candidates]
    texts = [(pool.problem.prompt, candidate.text or "") for pool, candidate in candidates]
    started, started_cpu = time.monotonic(), time.process_time()
    readings = reader.read(texts)
    wall, cpu = time.monotonic() - started, time.process_time() - started_cpu
    return [
        {
            "problem_id": candidate.problem_id,
            "candidate_id": candidate.candidate_id,
            "generator": candidate.generator,
            "logprob": reading.logprob,
            "entropy": reading.entropy,
            "worst": reading.worst,
            "num_tokens": reading.num_tokens,
            "input_tokens": len(given.ids),
            "wall_s": wall / len(texts),
            "cpu_s": cpu / len(texts),
            **features,
        }
        for (_, candidate), reading, features, given in zip(
            candidates, readings, reader.features, reader._rows, strict=True
        )
    ]


def table(given: argparse.Namespace) -> None:
    recipe = load_recipe(given.recipe)
    rows = pq.read_table(given.readings).to_pylist()
    done = {row["problem_id"] for row in rows}
    pools = [pool for pool in recorded_pools(recipe) if pool.problem.problem_id in done]
    scores = {name: {row["candidate_id"]: float(row[name]) for row in rows} for name in SIGNALS}
    found = labelled(recipe, pools, scores)
    tokens, cpu = sum(row["input_tokens"] for row in rows), sum(row["cpu_s"] for row in rows)
    print(
        f"{len(found)} problems, {len(rows)} answers, {tokens / len(rows):.0f} tokens each; "
        f"{1000 * cpu / len(rows):.0f} CPU seconds per 1,000 answers ({tokens / cpu:.0f} tokens per CPU second)\n"
    )
    print("\n".join(tables(found, list(scores))))


def _write(rows: Sequence[dict[str, Any]], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    plain = [
        {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in row.items()} for row in rows
    ]
    vectors = [key for key, value in plain[0].items() if isinstance(value, list)]
    table = pa.Table.from_pylist(plain)
    for key in vectors:
        place = table.schema.get_field_index(key)
        table = table.set_column(place, key, table[key].cast(pa.list_(pa.float32())))
    pq.write_table(table, part)
    part.rename(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    reading = verbs.add_parser("read")
    reading.add_argument("recipe")
    reading.add_argument("model", help="folder or hub name")
    reading.add_argument("readings", help="Parquet file to write or to go on with")
    reading.add_argument("--problems", type=int, default=200)
    reading.add_argument("--max-length", type=int, default=256)
    reading.add_argument("--dtype", default="bfloat16")
    reading.add_argument("--input-format", default="plain")
    reading.add_argument("--micro-batch-tokens", type=int, default=2048)
    reading.set_defaults(run=read)
    evaluation = verbs.add_parser("table")
    evaluation.add_argument("recipe")
    evaluation.add_argument("readings")
    evaluation.set_defaults(run=table)
    given = parser.parse_args()
    given.run(given)


if __name__ == "__main__":
    main()
