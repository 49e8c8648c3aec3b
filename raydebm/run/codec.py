"""Conversion between records (dataclasses) and table rows, with the table's schema.

=======================================  ===========================================
a field of type                          is stored as
=======================================  ===========================================
``str``, ``int``, ``float``, ``bool``    a column of its name, null for None
``datetime``                             a UTC timestamp in microseconds
a string enum                            a string
``tuple[float, ...]``                    a list
another dataclass                        its columns, inline
any other tuple, a mapping               JSON text in the column ``<name>_json``
=======================================  ===========================================

A missing column, or a null where the field does not take None, is read as the field's default.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields, is_dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from types import NoneType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import pyarrow as pa

from raydebm.identity import canonical_json

Row = dict[str, Any]
T = TypeVar("T")

_PLAIN = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    datetime: pa.timestamp("us", tz="UTC"),
}


class Codec(Generic[T]):
    """Conversion of one dataclass's records to table rows and back."""

    def __init__(self, kind: type[T], *, int32: Collection[str] = ()) -> None:
        """Derive the columns.

        Args:
            kind: dataclass of the records.
            int32: names of 32-bit integer columns. Default: all have 64 bits.
        """
        hints = get_type_hints(kind)
        self._kind = kind
        self._parts: list[tuple[str, Codec[Any] | _Column]] = [
            (field.name, _part(field, hints[field.name], int32))
            for field in fields(kind)  # type: ignore[arg-type]
            if field.init
        ]
        self.schema: pa.Schema = pa.schema([column for _, part in self._parts for column in part.schema])

    def row(self, record: T) -> Row:
        """The record as a table row."""
        row: Row = {}
        for name, part in self._parts:
            value = getattr(record, name)
            if isinstance(part, Codec):
                row |= part.row(value)
            else:
                row[part.name] = value if value is None or part.write is None else part.write(value)
        return row

    def record(self, row: Mapping[str, Any]) -> T:
        """The record of a row. Unknown columns are ignored.

        Raises:
            KeyError: a required column is missing.
        """
        values = {}
        for name, part in self._parts:
            if isinstance(part, Codec):
                values[name] = part.record(row)
            elif part.name in row or not part.has_default:
                value = row[part.name]
                if value is None and part.has_default and not part.takes_none:
                    continue
                values[name] = value if value is None or part.read is None else part.read(value)
        return self._kind(**values)

    @property
    def required(self) -> list[str]:
        """Columns without a default, which every table must have."""
        parts = [part for _, part in self._parts]
        nested = [name for part in parts if isinstance(part, Codec) for name in part.required]
        return nested + [part.name for part in parts if isinstance(part, _Column) and not part.has_default]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """One field as one column. Without ``write`` and ``read`` the value is stored as it is."""

    name: str
    type: pa.DataType
    write: Callable[[Any], Any] | None = None
    read: Callable[[Any], Any] | None = None
    has_default: bool = False
    takes_none: bool = False

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(self.name, self.type)])


def _part(field: Field[Any], hint: Any, int32: Collection[str]) -> Codec[Any] | _Column:
    kind = _without_none(hint)
    if is_dataclass(kind) and isinstance(kind, type):
        return Codec(kind, int32=int32)
    return replace(
        _column(field.name, kind, int32),
        has_default=field.default is not MISSING or field.default_factory is not MISSING,
        takes_none=kind is not hint,
    )


def _column(name: str, kind: Any, int32: Collection[str]) -> _Column:
    if kind in _PLAIN:
        return _Column(name=name, type=pa.int32() if name in int32 else _PLAIN[kind])
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _Column(name=name, type=pa.string(), write=str, read=kind)
    entry = _without_none(get_args(kind)[0]) if get_origin(kind) is tuple else None
    if entry is float:
        return _Column(name=name, type=pa.list_(pa.float64()), write=list, read=tuple)
    json_column = partial(_Column, name=f"{name}_json", type=pa.string())
    if entry is None:
        return json_column(write=_mapping_text, read=json.loads)
    if is_dataclass(entry):
        return json_column(write=_entries_text, read=partial(_entries, entry))
    return json_column(write=_tuple_text, read=_tuple)


def _without_none(hint: Any) -> Any:
    """The type X of ``X | None``."""
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return kinds[0] if NoneType in get_args(hint) and len(kinds) == 1 else hint


def _mapping_text(value: Mapping[str, Any]) -> str:
    return canonical_json(dict(value))


def _tuple_text(values: Collection[Any]) -> str:
    return canonical_json(list(values))


def _tuple(text: str) -> tuple[Any, ...]:
    return tuple(json.loads(text))


def _entries_text(values: Collection[Any]) -> str:
    return canonical_json([asdict(value) for value in values])


def _entries(kind: Any, text: str) -> tuple[Any, ...]:
    return tuple(kind(**entry) for entry in json.loads(text))
