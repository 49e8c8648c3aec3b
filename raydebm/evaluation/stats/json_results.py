"""Results that are stored as JSON and read again, with the command and versions that produced them."""

import platform
import shlex
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import TypeAdapter

from raydebm.errors import PoolError


class JsonResults:
    """Base class of dataclasses whose JSON is defined by their fields."""

    __slots__ = ()
    KIND: ClassVar[str] = "a result"
    REMEDY: ClassVar[str] = "run it again"
    """Action that creates a result of this version, for the error message."""

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = _adapter(type(self)).dump_python(self, mode="json")
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of ``to_json``.

        Raises:
            PoolError: the value was not written by this version.
        """
        try:
            read: Self = _adapter(cls).validate_python(value)
        except ValueError as error:
            raise PoolError(f"not {cls.KIND} of this version; {cls.REMEDY}: {error}") from error
        return read


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}
"""Adapters by class. The type checker does not accept a class as an argument of a cached function."""


def _adapter(kind: type) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def command_line() -> str:
    """This process's command line, as typed by a user."""
    program, *arguments = sys.argv
    path = Path(program)
    if path.name == "raydebm" or path.parts[-2:] == ("raydebm", "__main__.py"):
        program = "raydebm"
    return shlex.join([program, *arguments])


def versions() -> dict[str, str]:
    """Installed versions of the dependencies, read without importing them."""
    by_name = {"python": platform.python_version()}
    for name in ("raydebm", "torch", "transformers", "peft", "ray", "numpy", "scipy"):
        try:
            by_name[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return by_name
