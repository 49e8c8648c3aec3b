"""Files that a user names, text, YAML and outputs: whatever is wrong with one is a ConfigError that names it."""

import json
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from raydebm.errors import ConfigError

_MERGE, _VALUE = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:value"


class RepeatedKeyError(yaml.YAMLError):
    """A mapping has one key twice. YAML forbids that, and PyYAML lets the last one win."""

    def __init__(self, key: Any, first: int, second: int) -> None:
        """
        Args:
            key: the key.
            first: line in which it stands first; 1 is the first line.
            second: line in which it stands again.
        """
        super().__init__(key, first, second)
        self.key = key
        self.place = f"in line {first}" if first == second else f"in lines {first} and {second}"

    def __str__(self) -> str:
        return f"key {self.key!r} stands twice, {self.place}; remove one of them"


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, with keys that must differ.

    They are compared as the mapping is composed: later, what ``<<`` brings stands among a mapping's own keys.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[Any, int] = {}
        for key_node, _ in node.value:
            # Several `<<` add to each other. What cannot be a key is refused later, by the constructor.
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


def parsed_yaml(text: str) -> Any:
    """The value of a YAML text.

    Raises:
        RepeatedKeyError: a mapping has one key twice.
        yaml.YAMLError: it is not YAML; the message quotes the text.
        ValueError: it has a date that does not exist.
        RecursionError: it is too deep.
    """
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def yaml_value(text: str, *, where: str, hint: str = "") -> Any:
    """The value of a YAML text.

    Args:
        text: the YAML.
        where: the text in the words of the message, such as ``recipe 'demo.yaml'``.
        hint: what may help.

    Raises:
        ConfigError: it is not YAML, has one key twice or a date that does not exist, is too deep, or holds itself by an
            alias.
    """
    try:
        value = parsed_yaml(text)
        json.dumps(value, default=str, skipkeys=True)  # what holds itself would end in a RecursionError later
    except RepeatedKeyError as error:
        raise ConfigError(f"{where}: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not YAML{hint}: {error}") from error
    return value


@contextmanager
def writing(path: str | Path, *, option: str = "--out") -> Iterator[None]:
    """A block that writes to the path of an option.

    Raises:
        ConfigError: nothing can be written there; the message names the option.
    """
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{option} {str(path)!r} cannot be written: {error}; give another path") from error
