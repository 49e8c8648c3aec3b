"""Checkpoint folders between this machine's disk and a run directory, which may be on another filesystem.

Files go one by one and whole; the caller names the file whose presence means complete, and it goes last.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pyarrow import fs

from raydebm.store import RunDir


def absolute(run: RunDir) -> RunDir:
    """The same directory, named so that processes with another working directory find it."""
    return run if "://" in run.root else replace(run, root=str(Path(run.root).absolute()))


def publish(folder: Path, run: RunDir, *parts: str, last: str) -> None:
    """Replace ``run/parts`` by the files of a local folder; the file called ``last`` is written last."""
    run.remove(*parts)
    files = sorted((file for file in folder.rglob("*") if file.is_file()), key=lambda file: (file.name == last, file))
    for file in files:
        run.write_bytes(file.read_bytes(), *parts, *file.relative_to(folder).parts)


@contextmanager
def local_copy(uri: str) -> Iterator[Path]:
    """A local folder with the content of ``uri``: the folder itself when it is local, else a copy for the block."""
    if "://" not in uri:
        yield Path(uri)
        return
    filesystem, path = fs.FileSystem.from_uri(uri)
    folder = Path(tempfile.mkdtemp(prefix="raydebm-"))
    try:
        fs.copy_files(path, str(folder), source_filesystem=filesystem, destination_filesystem=fs.LocalFileSystem())
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
