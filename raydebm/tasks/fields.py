"""Fields of a structured answer: the leaves of a JSON value by path.

A path is written as ``total``, ``seller.name`` or ``items[0].price``. A key with other characters is written as
``["a.b"]``, and an item of a list with a key column (``x-key`` in the schema) as ``items[sku="A1"]``.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

from raydebm.records import Problem
from raydebm.tasks.constraints.expressions import EvaluationError, is_number, key_of

MAX_FIELDS = 500
"""Maximum number of leaves. An answer with more has no fields: people cannot review them, and requests must be fast."""
MAX_DEPTH = 16
"""Maximum depth of a path. A value that is nested more deeply is one leaf."""
KEY = "x-key"
"""Keyword in the schema of a list, for the property that identifies an item."""

_NAME = re.compile(r"[\w-]+")
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_NUMERIC = tuple("-0123456789")
"""First characters of a number in JSON."""
_ITEM = re.compile(r'\[(?:\d+|[^\]="\[]+=(?:"(?:[^"\\]|\\.)*"|[^\]"]*))\]')


@runtime_checkable
class HasFields(Protocol):
    """Task with objects or lists as answers, to get a probability for each field.

    If numbers may differ, the task also has a method ``field_tolerance(problem)`` with the allowed difference.
    """

    def fields(self, problem: Problem, answer: Any) -> Mapping[str, Any]:
        """JSON values of a parsed answer by path; empty for a problem without fields."""
        ...


def leaves(answer: Any, schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Leaves of an object or a list by path, in document order. Empty objects and lists inside it are leaves. The
    schema names the key columns of lists.

    The result is empty for any other value, an empty one, and one of more than ``MAX_FIELDS`` leaves.
    """
    if not isinstance(answer, dict | list) or not answer:
        return {}
    found: dict[str, Any] = {}
    for path, value in _walk("", answer, schema or {}, MAX_DEPTH):
        if len(found) == MAX_FIELDS:
            return {}
        found[path] = value
    return found


def _walk(path: str, value: Any, schema: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict | list) or not value or depth == 0:
        yield path, value
        return
    schema = schema if isinstance(schema, Mapping) else {}
    if isinstance(value, dict):
        properties = schema.get("properties")
        parts = [(_below(path, name), value[name], _of(properties, name)) for name in value]
    else:
        names = _item_names(value, schema.get(KEY))
        parts = [(f"{path}[{name}]", item, schema.get("items")) for name, item in zip(names, value, strict=True)]
    for place, part, below in parts:
        yield from _walk(place, part, below, depth - 1)


def _of(properties: Any, name: str) -> Any:
    return properties.get(name) if isinstance(properties, Mapping) else None


def _below(path: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        return f"{path}[{json.dumps(name, ensure_ascii=False)}]"
    return f"{path}.{name}" if path else name


def _item_names(items: Sequence[Any], key: Any) -> list[str]:
    """Names of a list's items: by key if every item has a different one, else by position."""
    if isinstance(key, str):
        keys = [item.get(key) if isinstance(item, dict) else None for item in items]
        names = [f"{key}={value_key(value)}" for value in keys if isinstance(value, str) or is_number(value)]
        if len(set(names)) == len(items):
            return names
    return [str(place) for place in range(len(items))]


def named_path(path: str, answer: Any, schema: Mapping[str, Any] | None = None) -> str:
    """Path of the field that a rule's path refers to, with items named as in ``leaves``.

    The path of a computed value, such as ``items[0].subtract(amount, tax)``, refers to ``items[0]``.
    """
    named, value = "", answer
    below: Any = schema or {}
    for name, place in _STEP.findall(path):
        if place and isinstance(value, list) and int(place) < len(value):
            named += f"[{_item_names(value, below.get(KEY))[int(place)]}]"
            value, below = value[int(place)], below.get("items")
        elif name and _NAME.fullmatch(name):
            named = _below(named, name)
            value, below = (value.get(name) if isinstance(value, dict) else None), _of(below.get("properties"), name)
        else:
            break
        below = below if isinstance(below, Mapping) else {}
    return named or path


def value_key(value: Any) -> str:
    """Canonical JSON text of a leaf; equal values have equal texts (1 equals 1.0)."""
    try:
        return key_of(value)
    except EvaluationError:  # NaN, or nested too deeply
        return json.dumps(str(value)[:200])


@lru_cache(maxsize=4096)
def kind_of_field(path: str) -> str:
    """The path with ``[*]`` for every item of a list, such as ``items[*].price``."""
    return _ITEM.sub("[*]", path)


def compare_fields(found: Mapping[str, Any], gold: Mapping[str, Any], *, tolerance: float = 0.0) -> dict[str, bool]:
    """Verdict on each field of an answer or of the reference answer, by path. Numbers may differ by the tolerance. A
    field of only one of them is wrong."""
    return {
        path: path in found and path in gold and is_same_value(value_key(found[path]), value_key(gold[path]), tolerance)
        for path in dict.fromkeys([*gold, *found])
    }


def is_same_value(text: str, other: str, tolerance: float) -> bool:
    """True if two canonical texts (``value_key``) are equal, or are numbers within the tolerance."""
    are_numbers = text.startswith(_NUMERIC) and other.startswith(_NUMERIC)
    return text == other or (are_numbers and _is_near(_number(text), _number(other), tolerance))


def _number(text: str) -> float:
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _is_near(number: float, other: float, tolerance: float) -> bool:
    try:
        # Decimal fractions are not exact in binary: 10.01 - 10.00 is above 0.01 by rounding alone.
        return abs(number - other) <= tolerance * (1 + 1e-9)
    except OverflowError:  # a fraction, and an integer beyond every float
        return False


def merged(texts: Sequence[str], votes: Sequence[int], tolerance: float) -> list[str]:
    """Give numbers that are equal within the tolerance the text of one of them; other texts are unchanged.

    Equality within a tolerance is not transitive: within 0.01, 1.00 equals 1.01, which equals 1.02. So the number with
    the most votes within its tolerance represents all numbers there, and the others are merged in the same way. Ties go
    to the number with more votes of its own, then to the smaller one. Two numbers with the same representative may
    differ by up to twice the tolerance.

    Args:
        texts: canonical texts of a field's values.
        votes: number of candidates with each text.
        tolerance: allowed difference.
    """
    numbers = sorted((_number(text), text) for text in set(texts) if text.startswith(_NUMERIC))
    if not any(_is_near(number, higher, tolerance) for (number, _), (higher, _) in pairwise(numbers)):
        return list(texts)
    near = {text: [text] for _, text in numbers}
    for place, (number, text) in enumerate(numbers):
        for higher, other in numbers[place + 1 :]:
            if not _is_near(number, higher, tolerance):
                break
            near[text].append(other)
            near[other].append(text)
    own = Counter[str]()
    for text, count in zip(texts, votes, strict=True):
        own[text] += count
    represented_by, left = dict[str, str](), {text: own[text] for _, text in numbers if len(near[text]) > 1}
    while left:
        most = max(left, key=lambda text: (sum(left.get(each, 0) for each in near[text]), own[text]))
        represented_by |= {text: most for text in near[most] if left.pop(text, None) is not None}
    return [represented_by.get(text, text) for text in texts]
