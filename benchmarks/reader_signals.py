"""What a language model that only reads the answers says about them: readings of a recorded pool, and a table.

    python benchmarks/reader_signals.py read configs/gsm8k_recorded.yaml MODEL readings/gsm8k.parquet --problems 200
    python benchmarks/reader_signals.py table configs/gsm8k_recorded.yaml readings/gsm8k.parquet

``read`` writes after every few problems and goes on where it stopped. Problems come in the order of their hashed ids,
so that the first 200 are a random part of all. Beside the readings it keeps frozen features of each text (mean and last
eight tokens' mean, of the middle layer and of the last one). ``table`` evaluates what is there; probes are fitted on
four fifths of the problems and judged on the other fifth.
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
from reader_table import SIGNALS, labelled, probe_scores, tables
from recorded_pools import RecordedPool, recorded_pools

from raydebm.baselines.causal_reader import Reader, StatePooling
from raydebm.config import ReaderBaseline, load_recipe

PROBLEMS_PER_WRITE = 4
LAST_TOKENS = 8


def read(given: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    recipe = load_recipe(given.recipe)
    target = Path(given.readings)
    rows = pq.read_table(target).to_pylist() if target.exists() else []
    done = {row["problem_id"] for row in rows}
    waiting = [pool for pool in recorded_pools(recipe, most=given.problems) if pool.problem.problem_id not in done]
    print(f"{len(done)} problems are read, {len(waiting)} to go", flush=True)
    reader = Reader(
        ReaderBaseline(
            name="reader", model=given.model, dtype=given.dtype, max_length=given.max_length,
            input_format=given.input_format, micro_batch_tokens=given.micro_batch_tokens,
        ),
        states=StatePooling(layers=(given.middle_layer, -1), last_tokens=LAST_TOKENS),
    )  # fmt: skip
    for start in range(0, len(waiting), PROBLEMS_PER_WRITE):
        rows += _rows_of(reader, waiting[start : start + PROBLEMS_PER_WRITE])
        _write(rows, target)
        count = min(start + PROBLEMS_PER_WRITE, len(waiting))
        print(f"{time.strftime('%H:%M:%S')} {count} of {len(waiting)}", flush=True)


def _rows_of(reader: Reader, pools: Sequence[RecordedPool]) -> list[dict[str, Any]]:
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
            "wall_s": wall / len(texts),
            "cpu_s": cpu / len(texts),
            "features": reading.features,
        }
        for (_, candidate), reading in zip(candidates, readings, strict=True)
    ]


def table(given: argparse.Namespace) -> None:
    recipe = load_recipe(given.recipe)
    rows = pq.read_table(given.readings).to_pylist()
    done = {row["problem_id"] for row in rows}
    pools = [pool for pool in recorded_pools(recipe) if pool.problem.problem_id in done]
    scores = {name: {row["candidate_id"]: float(row[name]) for row in rows} for name in SIGNALS}
    labelled_pools = labelled(recipe, pools, scores)
    features = {row["candidate_id"]: np.array(row["features"]) for row in rows}
    middle, last = (probe_scores(labelled_pools, features, half=half) for half in (0, 1))
    labelled_pools = labelled(recipe, pools, {**scores, "probe, middle layer": middle, "probe, last layer": last})
    tokens, cpu = sum(row["num_tokens"] for row in rows), sum(row["cpu_s"] for row in rows)
    print(
        f"{len(labelled_pools)} problems, {len(rows)} answers of {tokens / len(rows):.0f} tokens; "
        f"{1000 * cpu / len(rows):.0f} CPU seconds per 1,000 answers\n"
    )
    print("\n".join(tables(labelled_pools, list(labelled_pools[0].candidates[0].scores))))


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
    reading.add_argument("--middle-layer", type=int, default=16, help="whose states are kept beside the last layer's")
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
