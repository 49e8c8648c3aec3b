"""The files of a records folder, by their names.

``<kind>-<first>-<last>-<writer>-<sequence>-<level>.parquet``: what it holds (decisions or outcomes), the times of its
first and last row in microseconds since 1970, who wrote it, and how often it was merged. A file never changes after it
has its name; a merged file lists the names that it replaces in its metadata, so that a reader counts nothing twice
while those still exist.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from raydebm.run.folder import Folder

REPLACES = b"raydebm.replaces"
DECISION_FILES, OUTCOME_FILES = "decisions", "outcomes"
_NAME = re.compile(r"([a-z]+)-(\d{16})-(\d{16})-([0-9a-f]+)-(\d+)-(\d+)\.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFile:
    """What the name of a file says."""

    name: str
    first_us: int
    last_us: int
    writer: str
    level: int
    size: int
    """Bytes."""


def file_name(
    first_us: int, last_us: int, *, writer: str, sequence: int, level: int, kind: str = DECISION_FILES
) -> str:
    """The name of a file with rows from ``first_us`` to ``last_us``, in microseconds since 1970."""
    return f"{kind}-{first_us:016d}-{last_us:016d}-{writer}-{sequence:06d}-{level}.parquet"


def record_files(root: str, *, kind: str = DECISION_FILES) -> list[RecordFile]:
    """The folder's files of one kind, oldest first; [] when the folder does not exist.

    Raises:
        PoolError: it is a file.
    """
    named = [_record_file(kind, info.base_name, info.size) for info in Folder(root).files()]
    return sorted((file for file in named if file is not None), key=lambda file: (file.last_us, file.name))


def _record_file(kind: str, name: str, size: int | None) -> RecordFile | None:
    match = _NAME.fullmatch(name)
    if match is None or match[1] != kind:
        return None
    _, first, last, writer, _, level = match.groups()
    return RecordFile(
        name=name, first_us=int(first), last_us=int(last), writer=writer, level=int(level), size=size or 0
    )


def replaces_metadata(names: Iterable[str]) -> dict[bytes, bytes]:
    """Metadata of a merged file: the names that it replaces."""
    return {REPLACES: json.dumps(list(names)).encode()}


def replaced_by(metadata: dict[bytes, bytes] | None) -> frozenset[str]:
    """The names that a file with this metadata stands for."""
    return frozenset(json.loads((metadata or {}).get(REPLACES, b"[]")))
