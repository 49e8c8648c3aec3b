"""Results that are stored as JSON and read again."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import TypeAdapter

from raydebm.errors import PoolError


class JsonResults:
    """Base class of dataclasses whose JSON is defined by their fields."""

    __slots__ = ()
    KIND: ClassVar[str] = "a result"
    """Name of the result in an error."""
    REMEDY: ClassVar[str] = "run it again"
    """Command or action that creates a result of this version, for an error."""

    def to_json(self) -> dict[str, Any]:
        """JSON values by field."""
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
            raise PoolError(f"not {cls.KIND} of this version, {cls.REMEDY}: {error}") from error
        return read


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}
"""A dictionary instead of ``functools.cache``, whose arguments the type checker does not accept as classes."""


def _adapter(kind: type) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]
