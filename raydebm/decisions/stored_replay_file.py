"""Writes replayed decisions to one file, as they come."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from raydebm.decisions.stored_replay import Replayed, groups, replayed_row

REPLAYED = pa.schema(
    [
        ("record_id", pa.string()),
        ("task", pa.string()),
        ("problem_id", pa.string()),
        ("recorded_decision", pa.string()),
        ("recorded_selected", pa.string()),
        ("decision", pa.string()),
        ("as_it_stands", pa.string()),
        ("changed", pa.bool_()),
        ("selected", pa.string()),
        ("same_answer", pa.bool_()),
        ("sigma", pa.float64()),
        ("signal", pa.float64()),
        ("penalty", pa.float64()),
        ("confidence", pa.float64()),
        ("promised", pa.bool_()),
        ("num_passes", pa.int32()),
        ("num_candidates", pa.int32()),
        ("exact", pa.bool_()),
    ]
)


def parquet_rows(decisions: Iterator[Replayed], out: Path) -> int:
    """A Parquet table of schema ``REPLAYED``; returns the number of rows."""
    num_rows = 0
    with pq.ParquetWriter(out, REPLAYED) as writer:
        for group in groups(map(replayed_row, decisions), 10_000):
            writer.write_table(pa.Table.from_pylist(group, schema=REPLAYED))
            num_rows += len(group)
    return num_rows


def text_lines(decisions: Iterator[Replayed], out: Path) -> int:
    """JSON lines with the same names; returns the number of lines."""
    num_rows = 0
    with out.open("w", encoding="utf-8") as stream:
        for row in map(replayed_row, decisions):
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            num_rows += 1
    return num_rows
