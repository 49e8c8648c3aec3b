"""The run directory: Parquet tables with one explicit schema each, and a manifest that is written last.

``<run_dir>/<stage>/<table>.parquet`` (or a folder of part files) and ``<run_dir>/<stage>/manifest.json``. A stage is
complete exactly when its manifest is there. The directory is a local path or any filesystem URL that pyarrow opens.
"""

import json
import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from raydebm.errors import PoolError, TaskDataError
from raydebm.identity import canonical_json
from raydebm.records import (
    Candidate,
    CandidateScore,
    ConstraintReport,
    Energies,
    Gold,
    Label,
    Pair,
    Problem,
    Sampling,
    Verdict,
    Violation,
)

PROBLEMS = pa.schema(
    [
        ("task", pa.string()),
        ("problem_id", pa.string()),
        ("prompt", pa.string()),
        ("data_json", pa.string()),
        ("difficulty", pa.string()),
        ("split", pa.string()),
    ]
)
GOLDS = pa.schema([("task", pa.string()), ("problem_id", pa.string()), ("value_json", pa.string())])
CANDIDATES = pa.schema(
    [
        ("candidate_id", pa.string()),
        ("task", pa.string()),
        ("problem_id", pa.string()),
        ("generator", pa.string()),
        ("text", pa.string()),
        ("error", pa.string()),
        ("pass_index", pa.int32()),
        ("sample_index", pa.int32()),
        ("seed", pa.int64()),
        ("temperature", pa.float64()),
        ("top_p", pa.float64()),
        ("max_tokens", pa.int32()),
        ("stop_json", pa.string()),
        ("reasoning", pa.string()),
        ("finish_reason", pa.string()),
        ("prompt_tokens", pa.int64()),
        ("completion_tokens", pa.int64()),
        ("cost_usd", pa.float64()),
        ("latency_s", pa.float64()),
    ]
)
LABELS = pa.schema(
    [
        ("candidate_id", pa.string()),
        ("problem_id", pa.string()),
        ("verdict", pa.string()),
        ("violation_score", pa.float64()),
        ("parts_json", pa.string()),
        ("severity", pa.int32()),
        ("reason", pa.string()),
    ]
)
REPORTS = pa.schema(
    [
        ("candidate_id", pa.string()),
        ("answer", pa.string()),
        ("vote_key", pa.string()),
        ("penalty", pa.float64()),
        ("violations_json", pa.string()),
        ("error", pa.string()),
        ("proof", pa.bool_()),
        ("note", pa.string()),
    ]
)
ENERGIES = pa.schema(
    [
        ("candidate_id", pa.string()),
        ("members", pa.list_(pa.float64())),
        ("num_tokens", pa.int32()),
        ("num_truncated", pa.int32()),
        ("error", pa.string()),
    ]
)
SCORES = pa.schema(
    [
        ("candidate_id", pa.string()),
        ("name", pa.string()),
        ("score", pa.float64()),
        ("error", pa.string()),
        ("parts_json", pa.string()),
    ]
)
PAIRS = pa.schema([("problem_id", pa.string()), ("chosen", pa.string()), ("rejected", pa.string())])
_ADDED_LATER = frozenset({"parts_json", "proof", "note"})
"""Columns that runs of earlier versions lack; they are read as null."""

Row = dict[str, Any]


def problem_row(problem: Problem, split: str) -> Row:
    return {
        "task": problem.task,
        "problem_id": problem.problem_id,
        "prompt": problem.prompt,
        "data_json": canonical_json(dict(problem.data)),
        "difficulty": problem.difficulty,
        "split": split,
    }


def problem_of(row: Mapping[str, Any]) -> Problem:
    return Problem(
        task=row["task"],
        problem_id=row["problem_id"],
        prompt=row["prompt"],
        data=json.loads(row["data_json"]),
        difficulty=row["difficulty"],
    )


def gold_row(gold: Gold) -> Row:
    return {"task": gold.task, "problem_id": gold.problem_id, "value_json": canonical_json(dict(gold.value))}


def gold_of(row: Mapping[str, Any]) -> Gold:
    return Gold(task=row["task"], problem_id=row["problem_id"], value=json.loads(row["value_json"]))


def candidate_row(candidate: Candidate) -> Row:
    return {
        "candidate_id": candidate.candidate_id,
        "task": candidate.task,
        "problem_id": candidate.problem_id,
        "generator": candidate.generator,
        "text": candidate.text,
        "error": candidate.error,
        "pass_index": candidate.pass_index,
        "sample_index": candidate.sample_index,
        "seed": candidate.seed,
        "temperature": candidate.sampling.temperature,
        "top_p": candidate.sampling.top_p,
        "max_tokens": candidate.sampling.max_tokens,
        "stop_json": canonical_json(list(candidate.sampling.stop)),
        "reasoning": candidate.reasoning,
        "finish_reason": candidate.finish_reason,
        "prompt_tokens": candidate.prompt_tokens,
        "completion_tokens": candidate.completion_tokens,
        "cost_usd": candidate.cost_usd,
        "latency_s": candidate.latency_s,
    }


def candidate_of(row: Mapping[str, Any]) -> Candidate:
    sampling = Sampling(
        temperature=row["temperature"],
        top_p=row["top_p"],
        max_tokens=row["max_tokens"],
        stop=tuple(json.loads(row["stop_json"])),
    )
    taken = {"temperature", "top_p", "max_tokens", "stop_json"}
    return Candidate(sampling=sampling, **{name: row[name] for name in CANDIDATES.names if name not in taken})


def label_row(label: Label) -> Row:
    return {
        "candidate_id": label.candidate_id,
        "problem_id": label.problem_id,
        "verdict": str(label.verdict),
        "violation_score": label.violation_score,
        "parts_json": canonical_json(dict(label.parts)),
        "severity": label.severity,
        "reason": label.reason,
    }


def label_of(row: Mapping[str, Any]) -> Label:
    return Label(
        verdict=Verdict(row["verdict"]),
        parts=json.loads(row["parts_json"] or "{}"),
        **{name: row[name] for name in LABELS.names if name not in ("verdict", "parts_json")},
    )


def report_row(report: ConstraintReport, error: str | None = None) -> Row:
    violations = [
        {"constraint": v.constraint, "penalty": v.penalty, "weight": v.weight, "message": v.message}
        for v in report.violations
    ]
    return {
        "candidate_id": report.candidate_id,
        "answer": report.answer,
        "vote_key": report.vote_key,
        "penalty": report.penalty,
        "violations_json": canonical_json(violations),
        "error": report.error if error is None else error,
        "proof": report.proof,
        "note": report.note,
    }


def report_of(row: Mapping[str, Any]) -> ConstraintReport:
    return ConstraintReport(
        candidate_id=row["candidate_id"],
        answer=row["answer"],
        vote_key=row["vote_key"],
        penalty=math.inf if row["penalty"] is None else row["penalty"],
        violations=tuple(Violation(**violation) for violation in json.loads(row["violations_json"])),
        error=row["error"],
        proof=row["proof"],
        note=row["note"] or "",
    )


def energies_row(energies: Energies) -> Row:
    return {
        "candidate_id": energies.candidate_id,
        "members": list(energies.members),
        "num_tokens": energies.num_tokens,
        "num_truncated": energies.num_truncated,
        "error": None,
    }


def energies_of(row: Mapping[str, Any]) -> Energies | None:
    """None for a row that could not be scored (``error`` says why); without adapters that did not score it."""
    if row["error"] is not None:
        return None
    return Energies(
        candidate_id=row["candidate_id"],
        members=tuple(energy for energy in row["members"] if energy is not None),
        num_tokens=row["num_tokens"],
        num_truncated=row["num_truncated"],
    )


def score_row(score: CandidateScore) -> Row:
    row = {name: getattr(score, name) for name in SCORES.names if name != "parts_json"}
    return {**row, "parts_json": canonical_json(dict(score.parts))}


def score_of(row: Mapping[str, Any]) -> CandidateScore:
    parts = json.loads(row.get("parts_json") or "{}")
    return CandidateScore(**{name: row[name] for name in SCORES.names if name != "parts_json"}, parts=parts)


def pair_row(pair: Pair) -> Row:
    return {"problem_id": pair.problem_id, "chosen": pair.chosen, "rejected": pair.rejected}


def pair_of(row: Mapping[str, Any]) -> Pair:
    return Pair(**{name: row[name] for name in PAIRS.names})


@dataclass(frozen=True, slots=True)
class RunDir:
    """One run's directory. ``root`` is a local path or a filesystem URL (``s3://bucket/run``)."""

    root: str

    def _open(self) -> tuple[fs.FileSystem, str]:
        if "://" in self.root:
            filesystem, path = fs.FileSystem.from_uri(self.root)
            return filesystem, path
        return fs.LocalFileSystem(), str(self.root)

    def uri(self, *parts: str) -> str:
        """The address of something below the run directory, in the form the root was given."""
        return "/".join([self.root.rstrip("/"), *parts])

    def exists(self, *parts: str) -> bool:
        filesystem, path = self._open()
        info = filesystem.get_file_info("/".join([path, *parts]))
        return bool(info.type != fs.FileType.NotFound)

    def remove(self, *parts: str) -> None:
        """Remove a file or folder if it is there."""
        filesystem, path = self._open()
        target = "/".join([path, *parts])
        kind = filesystem.get_file_info(target).type
        if kind == fs.FileType.Directory:
            filesystem.delete_dir(target)
        elif kind == fs.FileType.File:
            filesystem.delete_file(target)

    def write_bytes(self, content: bytes, *parts: str) -> None:
        """Write a file so that readers see the old one or the new one, never a torn one."""
        filesystem, path = self._open()
        target = "/".join([path, *parts])
        filesystem.create_dir(target.rsplit("/", 1)[0], recursive=True)
        with filesystem.open_output_stream(target + ".tmp") as stream:
            stream.write(content)
        filesystem.move(target + ".tmp", target)

    def read_bytes(self, *parts: str) -> bytes:
        filesystem, path = self._open()
        with filesystem.open_input_stream("/".join([path, *parts])) as stream:
            content: bytes = stream.read()
        return content

    def write_json(self, value: object, *parts: str) -> None:
        self.write_bytes((json.dumps(value, indent=2, sort_keys=True) + "\n").encode(), *parts)

    def read_json(self, *parts: str) -> Any:
        return json.loads(self.read_bytes(*parts))

    def write_table(self, rows: Iterable[Row], schema: pa.Schema, *parts: str) -> int:
        """Write rows as one Parquet file; returns how many."""
        table = pa.Table.from_pylist(list(rows), schema=schema)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        self.write_bytes(sink.getvalue().to_pybytes(), *parts)
        return int(table.num_rows)

    def read_table(self, schema: pa.Schema, *parts: str) -> list[Row]:
        """Read a Parquet file, or all part files of a folder (ordered by name).

        Raises:
            PoolError: the table is missing or unreadable, or a column is; the message says which.
        """
        where = self.uri(*parts)
        filesystem, path = self._open()
        try:
            table = pq.read_table("/".join([path, *parts]), filesystem=filesystem)
        except FileNotFoundError as error:
            raise PoolError(f"{where} does not exist; run the stage that writes it first") from error
        except (pa.ArrowInvalid, OSError) as error:
            raise PoolError(f"{where} is not a readable Parquet table: {error}") from error
        missing = [name for name in schema.names if name not in table.column_names]
        if not _ADDED_LATER.issuperset(missing):
            raise PoolError(f"{where} lacks column(s) {', '.join(missing)}; found {', '.join(table.column_names)}")
        for name in missing:
            table = table.append_column(name, pa.nulls(table.num_rows, schema.field(name).type))
        rows: list[Row] = table.select(schema.names).cast(schema).to_pylist()
        return rows

    def manifest(self, stage: str) -> dict[str, Any] | None:
        """The stage's manifest, or None while the stage is not complete."""
        if not self.exists(stage, "manifest.json"):
            return None
        manifest: dict[str, Any] = self.read_json(stage, "manifest.json")
        return manifest

    def finish(self, stage: str, manifest: Mapping[str, Any]) -> None:
        """Write the stage's manifest. Last, because its presence means complete."""
        self.write_json(dict(manifest), stage, "manifest.json")

    def copy_stage(self, stage: str, other: "RunDir") -> None:
        """Copy a complete stage into another run directory, its manifest last.

        Raises:
            PoolError: the stage is not complete here.
        """
        manifest = self.manifest(stage)
        if manifest is None:
            raise PoolError(f"{self.uri(stage)} has no manifest: the stage is not complete, run it first")
        other.remove(stage)
        (source_fs, source), (target_fs, target) = self._open(), other._open()
        folder = f"{source}/{stage}"
        for info in source_fs.get_file_info(fs.FileSelector(folder, recursive=True)):
            if info.type == fs.FileType.File and info.path != f"{folder}/manifest.json":
                copied = f"{target}/{stage}/{info.path.removeprefix(folder + '/')}"
                target_fs.create_dir(copied.rsplit("/", 1)[0], recursive=True)
                fs.copy_files(info.path, copied, source_filesystem=source_fs, destination_filesystem=target_fs)
        other.finish(stage, manifest)


def local_copy(address: str) -> str:
    """A folder on this machine's disk; one behind a filesystem URL is copied to a new temporary folder."""
    if "://" not in address:
        return address
    source, path = fs.FileSystem.from_uri(address)
    folder = tempfile.mkdtemp(prefix="raydebm-")
    fs.copy_files(path, folder, source_filesystem=source, destination_filesystem=fs.LocalFileSystem())
    return folder


def pools_of(candidates: Iterable[Candidate]) -> dict[str, list[Candidate]]:
    """Candidates by problem, in the order in which they come. Greedy ones are left out: they are not of the pool."""
    pools: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        if not candidate.is_greedy:
            pools.setdefault(candidate.problem_id, []).append(candidate)
    return pools


def read_json_lines(path: str) -> Iterator[tuple[int, Row]]:
    """(line number, object) of a JSON-lines file, plain or gzip.

    Raises:
        TaskDataError: the file is missing, or a line is not a JSON object; the message names file and line.
    """
    try:
        with pa.input_stream(path, compression="detect") as stream:
            content = stream.read().decode("utf-8")
    except FileNotFoundError as error:
        raise TaskDataError(f"file {path!r} does not exist") from error
    except (OSError, UnicodeDecodeError) as error:
        raise TaskDataError(f"file {path!r} cannot be read as text: {error}") from error
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise TaskDataError(f"{path}:{number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise TaskDataError(f"{path}:{number}: must be a JSON object, got {type(row).__name__}")
        yield number, row
