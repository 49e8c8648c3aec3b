"""Where an export goes: a folder of its own."""

from pathlib import Path

import yaml

from raydebm.errors import ConfigError
from raydebm.user_files.writing import writing


def fresh_folder(folder: Path) -> Path:
    """Make the folder.

    Raises:
        ConfigError: something is there already (an export never mixes with other files), or nothing can be there.
    """
    with writing(folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"{str(folder)!r} exists and is not empty; choose another --out, or remove it first")
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def front_matter(values: dict[str, object]) -> str:
    """The YAML block at the top of a card; values that are None or empty are left out."""
    fields = {key: value for key, value in values.items() if value not in (None, (), [], {})}
    return f"---\n{yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)}---\n"
