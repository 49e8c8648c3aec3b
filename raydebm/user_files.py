"""Read and write a user's files. Every failure is an error that names the file."""

import gzip
import json
import zlib
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from raydebm.errors import ConfigError, TaskDataError

_MERGE, _VALUE = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:value"


class RepeatedKeyError(yaml.YAMLError):
    """A mapping has a key twice. YAML forbids that, but PyYAML keeps the last one."""

    def __init__(self, key: Any, first: int, second: int) -> None:
        """Name the key and the lines of its two occurrences, from 1."""
        super().__init__(key, first, second)
        self.key = key
        self.place = f"in line {first}" if first == second else f"in lines {first} and {second}"

    def __str__(self) -> str:
        return f"key {self.key!r} is given twice, {self.place}; remove one of them"


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with a check for repeated keys.

    The check runs while a mapping is composed, before ``<<`` merges other keys into it.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[Any, int] = {}
        for key_node, _ in node.value:
            # Several `<<` are allowed. Invalid keys are refused later, by the constructor.
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == _MERGE:
                continue
            key = key_node.value if key_node.tag == _VALUE else self.construct_object(key_node)
            line = key_node.start_mark.line + 1
            if isinstance(key, Hashable) and key in lines:
                raise RepeatedKeyError(key, lines[key], line)
            if isinstance(key, Hashable):
                lines[key] = line
        return node


def text_of(path: str | Path, *, what: str, missing: str) -> str:
    """The text of a file.

    Args:
        path: path of the file.
        what: kind of file for the message, such as ``recipe``.
        missing: end of the message for a missing file, such as ``; check the path``.

    Raises:
        ConfigError: the file does not exist, is a folder, cannot be opened, or is not UTF-8 text.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"{what} {str(path)!r} does not exist{missing}") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{what} {str(path)!r} cannot be read as UTF-8 text: {error}") from error


def text_lines(path: str | Path, *, what: str = "file") -> list[str]:
    """The lines of a text file, plain or gzip.

    Raises:
        TaskDataError: the file is missing, or is not text.
    """
    try:
        content = Path(path).read_bytes()
        text = (gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content).decode("utf-8")
    except FileNotFoundError as error:
        raise TaskDataError(f"{what} {str(path)!r} does not exist") from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise TaskDataError(f"{what} {str(path)!r} cannot be read as text: {error}") from error
    # Not splitlines(): texts may contain U+2028 and the like, which JSON need not escape.
    return text.split("\n")


def read_json_lines(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of a JSON-lines file, plain or gzip.

    Raises:
        TaskDataError: the file is missing, or a line is not a JSON object; the message names file and line.
    """
    for number, line in enumerate(text_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # such as numbers of thousands of digits, or deep nesting
            raise TaskDataError(f"{path}:{number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise TaskDataError(f"{path}:{number}: must be a JSON object, got {type(row).__name__}")
        yield number, row


def parsed_yaml(text: str) -> Any:
    """Parse YAML, without repeated keys.

    Raises:
        RepeatedKeyError: a mapping has a key twice.
        yaml.YAMLError: the text is not YAML; the message quotes it.
        ValueError: the text has a date that does not exist.
        RecursionError: the text is nested too deeply.
    """
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def yaml_value(text: str, *, where: str, hint: str = "") -> Any:
    """Parse a user's YAML, with a ConfigError for every fault.

    Args:
        text: content of the file, or the value of an option.
        where: name of the text for the message, such as ``recipe 'demo.yaml'``.
        hint: further advice for the message.

    Raises:
        ConfigError: the text is not YAML, has a repeated key or a date that does not exist, is nested too deeply, or
            contains itself through an alias.
    """
    try:
        value = parsed_yaml(text)
        json.dumps(value, default=str, skipkeys=True)  # finds a value that contains itself
    except RepeatedKeyError as error:
        raise ConfigError(f"{where}: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not YAML{hint}: {error}") from error
    return value


@contextmanager
def writing(path: str | Path, *, option: str = "--out") -> Iterator[None]:
    """Context manager for writing to the path of an option.

    Raises:
        ConfigError: the path cannot be written; the message names the option.
    """
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{option} {str(path)!r} cannot be written: {error}; give another path") from error
