"""Addresses of files and folders: paths of this machine, and filesystem URLs such as ``s3://bucket/run``."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from raydebm.embedded import DEMO_RUN, DEMO_RUN_FOLDER
from raydebm.errors import ConfigError, without_credentials

SCHEMES = ("s3", "gs", "abfs", "hdfs", "file")
"""Schemes of URLs that a filesystem is known for."""


def is_url(address: str) -> bool:
    """Whether the address is a filesystem URL; else it is a path of this machine."""
    return "://" in address


def resolved(address: str) -> str:
    """The address by which processes with another working directory find the same place; a URL stays as it is."""
    return address if is_url(address) else str(Path(address).resolve())


def run_address(name: str) -> str:
    """The address of a run to read: ``demo`` is the finished run in this package, everything else is an address."""
    return str(DEMO_RUN_FOLDER) if name == DEMO_RUN else name


def is_packaged(address: str) -> bool:
    """Whether a run is the finished one in this package, in whose folder nothing is written."""
    return not is_url(address) and Path(address).resolve() == DEMO_RUN_FOLDER.resolve()


def filesystem_of(address: str) -> tuple[fs.FileSystem, str]:
    """The filesystem, and the path there.

    Raises:
        ConfigError: a URL of an unknown scheme, or one that names no place.
    """
    if not is_url(address):
        return fs.LocalFileSystem(), address
    try:
        filesystem, path = fs.FileSystem.from_uri(address)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _no_address(address, str(error)) from error
    if not path:
        raise _no_address(address, "it names no bucket")
    return filesystem, path


def _no_address(address: str, reason: str) -> ConfigError:
    schemes = ", ".join(f"{scheme}://" for scheme in SCHEMES)
    return ConfigError(
        without_credentials(f"{address!r} is no address: {reason}; give a path, or a URL that starts with {schemes}")
    )


@contextmanager
def local_copy(address: str) -> Iterator[Path]:
    """A folder of this machine with the content of ``address``: the folder itself where it is local, else a copy that
    is removed at the end of the block."""
    if not is_url(address):
        yield Path(address)
        return
    source, path = filesystem_of(address)
    folder = Path(tempfile.mkdtemp(prefix="raydebm-"))
    try:
        fs.copy_files(path, str(folder), source_filesystem=source, destination_filesystem=fs.LocalFileSystem())
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
