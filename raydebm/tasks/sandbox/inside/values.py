"""Plain data as JSON."""

from collections.abc import Callable, Iterable
from typing import Any


class _NotPlainError(Exception):
    """A value is not plain data."""


def encode(value: Any) -> Any:
    """JSON value that preserves the difference between list and tuple, int and float, and so on.

    A value that contains other than plain data becomes ``["o", type name]`` as a whole.
    """
    try:
        return _encode(value)
    except (_NotPlainError, RecursionError) as error:
        return ["o", str(error)[:200]]


def _encode(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return ["i", hex(value)]
    if isinstance(value, float):
        return ["f", float.__repr__(value)]
    if isinstance(value, complex):
        return ["c", float.__repr__(value.real), float.__repr__(value.imag)]
    if isinstance(value, bytes):
        return ["b", bytes.hex(value)]
    for kind, tag in ((list, "l"), (tuple, "t"), (set, "s"), (frozenset, "z")):
        if isinstance(value, kind):
            return [tag, [_encode(part) for part in value]]
    if isinstance(value, dict):
        return ["d", [[_encode(key), _encode(part)] for key, part in value.items()]]
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return _encode(value.tolist())
    raise _NotPlainError(type(value).__name__)


class Opaque:
    """Placeholder for a value that was not plain data. It does not equal any value, including itself."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<{self.name}>"


def decode(value: Any) -> Any:
    """Inverse of ``encode``.

    Raises:
        ValueError, TypeError, LookupError, RecursionError: the value was not written by ``encode``.
    """
    if value is None or isinstance(value, bool | str):
        return value
    tag, content = value[0], value[1]
    if tag == "c":
        return complex(float(content), float(value[2]))
    if tag == "d":
        return {decode(key): decode(part) for key, part in content}
    simple: dict[str, Callable[[str], Any]] = {
        "i": lambda text: int(text, 16),
        "f": float,
        "b": bytes.fromhex,
        "o": Opaque,
    }
    if tag in simple:
        return simple[tag](content)
    kinds: dict[str, Callable[[Iterable[Any]], Any]] = {"l": list, "t": tuple, "s": set, "z": frozenset}
    return kinds[tag](decode(part) for part in content)
