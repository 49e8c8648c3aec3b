"""Reading of text and YAML: whatever is wrong with it is a ConfigError that names it."""

import json
from pathlib import Path
from typing import Any

import yaml

from raydebm.errors import ConfigError


def text_of(path: str | Path, *, what: str, missing: str) -> str:
    """The text of a file.

    Args:
        path: the file.
        what: the kind of file in the words of the message, such as ``recipe``.
        missing: what to do about a file that is not there.

    Raises:
        ConfigError: there is no such file, or it is no text: a folder, another user's, in another encoding.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"{what} {str(path)!r} does not exist{missing}") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{what} {str(path)!r} cannot be read as UTF-8 text: {error}") from error


def yaml_value(text: str, *, where: str, hint: str = "") -> Any:
    """The value of a YAML text.

    Args:
        text: the YAML.
        where: the text in the words of the message, such as ``recipe 'demo.yaml'``.
        hint: what may help.

    Raises:
        ConfigError: it is not YAML, has a date that does not exist, is too deep, or holds itself by an alias.
    """
    try:
        value = yaml.safe_load(text)
        json.dumps(value, default=str, skipkeys=True)  # what holds itself would end in a RecursionError later
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not YAML{hint}: {error}") from error
    return value
