"""Where an export goes: a folder of its own."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from raydebm.errors import ConfigError
from raydebm.user_files.writing import writing


@contextmanager
def fresh_folder(folder: Path) -> Iterator[Path]:
    """A block that writes an export into the folder, which is made. Where the block raises, nothing of it stays.

    Raises:
        ConfigError: something is there already (an export never mixes with other files), or nothing can be there.
    """
    with writing(folder):
        is_there = folder.exists()
        if is_there and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"{str(folder)!r} exists and is not empty; choose another --out, or remove it first")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            yield folder
        except BaseException:
            _empty(folder)
            if not is_there:
                folder.rmdir()
            raise


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def front_matter(values: dict[str, object]) -> str:
    """The YAML block at the top of a card; values that are None or empty are left out."""
    fields = {key: value for key, value in values.items() if value not in (None, (), [], {})}
    return f"---\n{yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)}---\n"
