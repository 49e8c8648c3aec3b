"""Addresses of files and folders: local paths, and filesystem URLs such as ``s3://bucket/run``."""

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
"""URL schemes of the supported filesystems."""


def is_url(address: str) -> bool:
    """Whether the address is a filesystem URL rather than a local path."""
    return "://" in address


def resolved(address: str) -> str:
    """The address as an absolute path, valid in any working directory. URLs are returned unchanged."""
    return address if is_url(address) else str(Path(address).resolve())


def run_address(name: str) -> str:
    """The address of a run to read; ``demo`` names the finished run in this package."""
    return str(DEMO_RUN_FOLDER) if name == DEMO_RUN else name


def is_packaged(address: str) -> bool:
    """Whether the address is the read-only run in this package."""
    return not is_url(address) and Path(address).resolve() == DEMO_RUN_FOLDER.resolve()


def filesystem_of(address: str) -> tuple[fs.FileSystem, str]:
    """The filesystem, and the path in it.

    Raises:
        ConfigError: unknown URL scheme, or a URL without a path, such as one that names no bucket.
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
        without_credentials(
            f"{address!r} is not an address: {reason}; give a path, or a URL that starts with {schemes}"
        )
    )


@contextmanager
def local_copy(address: str) -> Iterator[Path]:
    """Context manager for a local folder with the content of ``address``: the folder itself if local, else a temporary
    copy."""
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
