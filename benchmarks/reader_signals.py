"""What a language model that only reads the answers says about them: readings of a recorded pool, and a table.

    python benchmarks/reader_signals.py read configs/gsm8k_recorded.yaml MODEL readings/gsm8k.qwen --problems 200
    python benchmarks/reader_signals.py read configs/gsm8k_recorded.yaml package:minilm readings/gsm8k.minilm --encoder
    python benchmarks/reader_signals.py table configs/gsm8k_recorded.yaml qwen=readings/gsm8k.qwen minilm=...

``read`` writes a file into its folder after every few problems and goes on where it stopped. Problems come in the
order of their hashed ids, so that the first 200 are a random part of all. Beside the readings it keeps frozen features
of each text (mean and last eight tokens' mean, of the middle layer and of the last one); of an encoder, which expects
no token, there are features alone. ``table`` evaluates the problems that all folders have: signals, and heads on the
features of the last layer, which are fitted on four fifths of the problems and score the other fifth, from all pairs
and from pairs within one author; of several readers also the sums of the latter, with and without the entropies. Then
ensembles of five heads: of one backbone, each on its own bag of 80 % of the problems, and of several backbones.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from encoder_states import EncoderStates
from numpy.typing import NDArray
from reader_ensembles import ensemble_tables
from reader_heads import head_scores
from reader_table import SIGNALS, labelled, tables, with_scores
from recorded_pools import RecordedPool, recorded_pools

from raydebm.baselines.causal_reader import Reader, StatePooling
from raydebm.config import ReaderBaseline, load_recipe

LAST_TOKENS = 8


def read(given: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    recipe = load_recipe(given.recipe)
    folder = Path(given.readings)
    folder.mkdir(parents=True, exist_ok=True)
    done = {row["problem_id"] for row in _stored(folder, columns=["problem_id"])}
    waiting = [pool for pool in recorded_pools(recipe, most=given.problems) if pool.problem.problem_id not in done]
    print(f"{len(done)} problems are read, {len(waiting)} to go", flush=True)
    reader = _encoder(given) if given.encoder else _reader(given)
    for start in range(0, len(waiting), given.problems_per_file):
        pools = waiting[start : start + given.problems_per_file]
        _write(_rows_of(reader, pools), folder / f"{len(done) + start:06}.parquet")
        print(f"{time.strftime('%H:%M:%S')} {start + len(pools)} of {len(waiting)}", flush=True)


def _stored(folder: Path, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    files = sorted(folder.glob("*.parquet"))
    rows: list[dict[str, Any]] = [row for file in files for row in pq.read_table(file, columns=columns).to_pylist()]
    return rows


def _encoder(given: argparse.Namespace) -> EncoderStates:
    return EncoderStates(
        given.model,
        max_length=given.max_length,
        micro_batch_tokens=given.micro_batch_tokens,
        last_tokens=LAST_TOKENS,
    )


def _reader(given: argparse.Namespace) -> Reader:
    return Reader(
        ReaderBaseline(
            name="reader", model=given.model, dtype=given.dtype, max_length=given.max_length,
            input_format=given.input_format, micro_batch_tokens=given.micro_batch_tokens,
        ),
        states=StatePooling(layers=(given.middle_layer, -1), last_tokens=LAST_TOKENS),
    )  # fmt: skip


def _rows_of(reader: Reader | EncoderStates, pools: Sequence[RecordedPool]) -> list[dict[str, Any]]:
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
    folders = dict(named.split("=", 1) for named in given.readings)
    read_by = {name: _stored(Path(folder)) for name, folder in folders.items()}
    done = set.intersection(*({row["problem_id"] for row in rows} for rows in read_by.values()))
    pools = labelled(recipe, [pool for pool in recorded_pools(recipe) if pool.problem.problem_id in done])
    print(f"{len(pools)} problems, {sum(len(pool.candidates) for pool in pools)} answers\n")
    print("\n".join(costs(read_by)), end="\n\n")
    last = {name: _last_layer(rows) for name, rows in read_by.items()}
    scores: dict[str, dict[str, float]] = {}
    for name, rows in read_by.items():
        known = [signal for signal in SIGNALS if rows[0][signal] is not None]
        scores |= {f"{name}: {each}": {row["candidate_id"]: float(row[each]) for row in rows} for each in known}
        for within, kind in ((False, "all pairs"), (True, "within one author")):
            scores[f"{name}: head, {kind}"] = head_scores(pools, last[name], within_author=within)
    scores |= _together(scores, [name for name, rows in read_by.items() if rows[0]["entropy"] is not None])
    print("\n".join(tables(with_scores(pools, scores), list(scores))), end="\n\n")
    print("\n".join(ensemble_tables(recipe, pools, last)))


def _together(scores: Mapping[str, Mapping[str, float]], readers: Sequence[str]) -> dict[str, dict[str, float]]:
    """Sums over several readers, each divided by its standard deviation."""
    if len(readers) < 2:
        return {}
    heads = [scores[f"{name}: head, within one author"] for name in readers]
    entropies = [scores[f"{name}: entropy"] for name in readers]
    return {
        f"{' and '.join(readers)}: heads, within one author": _sum(heads),
        f"{' and '.join(readers)}: heads, within one author, and entropies": _sum([*heads, *entropies]),
    }


def _sum(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    scales = [float(np.std(list(part.values()))) or 1.0 for part in parts]
    return {key: sum(part[key] / scale for part, scale in zip(parts, scales, strict=True)) for key in parts[0]}


def costs(read_by: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """What reading took, per model."""
    lines = ["| model | answers | tokens, mean | CPU seconds per 1,000 answers |", "|---|---:|---:|---:|"]
    for name, rows in read_by.items():
        tokens, cpu = (sum(row[key] for row in rows) / len(rows) for key in ("num_tokens", "cpu_s"))
        lines.append(f"| {name} | {len(rows)} | {tokens:.0f} | {1000 * cpu:.0f} |")
    return lines


def _last_layer(rows: Sequence[Mapping[str, Any]]) -> dict[str, NDArray[np.float64]]:
    """By candidate id: the second half of the features."""
    return {row["candidate_id"]: np.array(row["features"][len(row["features"]) // 2 :]) for row in rows}


def _write(rows: Sequence[dict[str, Any]], target: Path) -> None:
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
    reading.add_argument("readings", help="folder to write or to go on with")
    reading.add_argument("--problems", type=int, default=200)
    reading.add_argument("--encoder", action="store_true", help="the model is a backbone of the scorer: features alone")
    reading.add_argument("--middle-layer", type=int, default=16, help="whose states are kept beside the last layer's")
    reading.add_argument("--max-length", type=int, default=256)
    reading.add_argument("--dtype", default="bfloat16")
    reading.add_argument("--input-format", default="plain")
    reading.add_argument("--problems-per-file", type=int, default=4)
    reading.add_argument("--micro-batch-tokens", type=int, default=2048)
    reading.set_defaults(run=read)
    evaluation = verbs.add_parser("table")
    evaluation.add_argument("recipe")
    evaluation.add_argument("readings", nargs="+", metavar="NAME=FOLDER")
    evaluation.set_defaults(run=table)
    given = parser.parse_args()
    given.run(given)


if __name__ == "__main__":
    main()
