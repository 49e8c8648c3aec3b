"""Read the rows of a benchmark from a data set of the hub, a local file, or a folder of files.

In:   a recipe's ``source``.
Out:  (where, row) pairs: "where" is the file and line, for error messages; a row has a benchmark's fields.
Independent of: the meaning of the fields.

Files: ``.jsonl`` (one object per line), ``.json`` (a list of objects, one object, or one object per line) and ``.csv``,
each optionally with ``.gz``; ``.parquet``.
"""

import ast
import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import chain
from pathlib import Path
from typing import Any

from raydebm.embedded import local_path
from raydebm.errors import TaskDataError
from raydebm.records import Gold, Problem
from raydebm.tasks.hub_files import SUFFIXES, download, hub_splits
from raydebm.user_files import read_json_lines

Row = Mapping[str, Any]
Located = tuple[str, Row]
"""(location of the row, row)."""

JSON_LINES = ("problems_{split}.jsonl.gz", "problems_{split}.jsonl", "{split}.jsonl.gz", "{split}.jsonl")
"""Usual names of a split's file, in order of preference."""

_lookups: ContextVar[dict[Path, set[str]] | None] = ContextVar("lookups", default=None)
_HUB = "hub:"
_BATCH_SIZE = 256
_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")


@contextmanager
def recorded_lookups() -> Iterator[dict[Path, set[str]]]:
    """Collect the names and patterns (of ``Path.glob``) of files that tasks look for inside the block, by folder."""
    found: dict[Path, set[str]] = {}
    token = _lookups.set(found)
    try:
        yield found
    finally:
        _lookups.reset(token)


def record_lookup(folder: Path, names: Iterable[str]) -> None:
    """Record the files of a folder that a task reads if they exist, by name or pattern of ``Path.glob``. Other files
    do not affect its problems."""
    found = _lookups.get()
    if found is not None:
        found.setdefault(folder, set()).update(names)


def check_split(split: str, known: Sequence[str], *, task: str) -> None:
    """Raise TaskDataError if the task has no such split."""
    if split not in known:
        raise TaskDataError(f"unknown split {split!r}; {task} has {' and '.join(known)}")


def hub_name(source: str | None, default: str) -> str | None:
    """Hub data set of a source: the default for None and ``"hub:"``; None for a path."""
    if source is None:
        return default
    return source.removeprefix(_HUB) or default if source.startswith(_HUB) else None


def hub_rows(
    dataset: str,
    configuration: str | None = None,
    *,
    split: str | None = None,
    otherwise: str = "give a local .jsonl file as the `source` of `task.train` and `task.test`",
) -> Iterator[Located]:
    """Rows of a split of a hub data set, by default of all its splits in turn.

    Raises:
        TaskDataError: the data cannot be loaded, or has no such configuration or split; the message ends with the
            remedy ``otherwise``.
    """
    name = " ".join(filter(None, (dataset, configuration)))
    try:
        splits, revision = hub_splits(dataset, configuration)
        wanted = [part for part in splits if split in (None, part)]
        files = {part: download(dataset, splits[part], revision) for part in wanted}
    except Exception as error:  # the hub's client raises many kinds, with the same remedy
        raise TaskDataError(f"cannot load {name}: {error}. Check the network, or {otherwise}") from error
    if not files:
        there = ", ".join(splits) or f"no file of rows ({', '.join(SUFFIXES)})"
        which = "" if split is None else f" {split!r}"
        raise TaskDataError(f"{name} has no split{which} on the hub; it has {there}; {otherwise}")
    return chain.from_iterable(_of_split(f"{name} {part}", paths) for part, paths in files.items())


def _of_split(name: str, files: Sequence[Path]) -> Iterator[Located]:
    rows = chain.from_iterable((row for _, row in file_rows(file)) for file in files)
    return ((f"{name} row {number}", row) for number, row in enumerate(rows))


def local_file(source: str, split: str, *, otherwise: str, names: Iterable[str] = JSON_LINES) -> Path:
    """The file itself, or the split's file in a folder. Other files of the folder are assumed not to affect the
    problems, unless the task records them with ``record_lookup``.

    Args:
        source: path of a file or a folder, or an ``embedded:`` one.
        split: the task's name of the split.
        otherwise: possible sources, for the end of an error message.
        names: names of files to look for in a folder, in order of preference, with ``{split}`` for the split.

    Raises:
        TaskDataError: there is no such path, or the folder has none of the names.
    """
    path = local_path(source)
    if path.is_file():
        return path
    names = [name.format(split=split) for name in names]
    record_lookup(path, names)
    for name in names:
        if (path / name).is_file():
            return path / name
    if path.is_dir():
        raise TaskDataError(f"folder {source!r} has none of {', '.join(names)}")
    raise TaskDataError(f"source {source!r} does not exist; give {otherwise}")


def file_rows(file: Path) -> Iterator[Located]:
    """Rows of a local file, in the format of its extension.

    Raises:
        TaskDataError: the file is missing, unreadable, or of an unknown format; the message names the file.
    """
    kind = Path(file.stem).suffix if file.suffix == ".gz" else file.suffix
    if kind not in _SUFFIXES or (file.suffix == ".gz" and kind == ".parquet"):
        raise TaskDataError(f"file {str(file)!r} is of an unknown kind; known endings: {', '.join(_SUFFIXES)}, .gz")
    if kind == ".jsonl":
        for number, row in read_json_lines(str(file)):
            yield f"{file.name}:{number}", row
        return
    try:
        for number, row in enumerate(_READERS[kind](file)):
            if not isinstance(row, Mapping):
                raise TaskDataError(f"{file.name} row {number}: must be an object, got {type(row).__name__}")
            yield f"{file.name} row {number}", row
    except (OSError, EOFError, ValueError, RecursionError, zlib.error, csv.Error) as error:
        # ValueError: it is not JSON, text or Parquet. RecursionError: it is JSON of thousands of levels.
        raise TaskDataError(f"file {str(file)!r} cannot be read as {kind[1:]}: {error}") from error


def split_rows(
    split: str,
    source: str | None,
    *,
    dataset: str,
    configuration: str | None = None,
    names: Iterable[str] = JSON_LINES,
) -> Iterator[Located]:
    """Rows of a split, if the hub's splits have the same names as the task's.

    Args:
        split: the task's name of the split, already checked.
        source: a file or folder, or ``"hub:<name>"``. Default, and for ``"hub:"``: ``dataset``.
        dataset: the task's data set on the hub.
        configuration: configuration of the hub data set. Default: its default one.
        names: names of files as in ``local_file``.
    """
    on_hub = hub_name(source, dataset)
    if on_hub is None:
        otherwise = f"a .jsonl file, a folder, or hub:{dataset}"
        return file_rows(local_file(str(source), split, otherwise=otherwise, names=names))
    return hub_rows(on_hub, configuration, split=split)


def distinct(pairs: Iterable[tuple[Problem, Gold]]) -> Iterator[tuple[Problem, Gold]]:
    """Skip repeated problems. Ids depend on the text, so equal texts are the same problem."""
    seen: set[str] = set()
    for problem, gold in pairs:
        if problem.problem_id not in seen:
            seen.add(problem.problem_id)
            yield problem, gold


def written_value(value: Any) -> Any:
    """Read a list or object from a text in JSON or Python syntax, as in CSV files and on the hub; return other values
    unchanged."""
    if isinstance(value, str) and value[:1] in ("[", "{", "("):
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                return read(value)
    return value


def json_object(text: str) -> dict[str, Any] | None:
    """The JSON object that is the whole text, else None."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _text_of(file: Path) -> str:
    content = file.read_bytes()
    return (gzip.decompress(content) if file.suffix == ".gz" else content).decode("utf-8-sig")


def _json_rows(file: Path) -> Iterator[Any]:
    """A list of objects, one object, or (as on the hub) one object per line."""
    text = _text_of(file)
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
        return map(json.loads, filter(str.strip, text.splitlines()))
    return iter(content if isinstance(content, list) else [content])


def _csv_rows(file: Path) -> Iterator[Row]:
    return csv.DictReader(_text_of(file).splitlines(keepends=True))


def _parquet_rows(file: Path) -> Iterator[Row]:
    """Rows of a Parquet file, read in batches, because a whole benchmark of programs would fill the memory."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as table:
        for batch in table.iter_batches(batch_size=_BATCH_SIZE):
            yield from batch.to_pylist()


_READERS: dict[str, Callable[[Path], Iterator[Any]]] = {
    ".json": _json_rows,
    ".csv": _csv_rows,
    ".parquet": _parquet_rows,
}
