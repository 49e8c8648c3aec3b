"""JSON Schema (draft 2020-12) that cannot be made slow, and reaches no network.

Differences from the standard, all refused or replaced when a schema is read: ``$ref`` must stay inside the schema;
patterns are RE2; ``patternProperties`` and dynamic references are not known; a check ends after a fixed number of
steps.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from raydebm.constraints.expressions import EvaluationError
from raydebm.constraints.patterns import compile_pattern, is_found
from raydebm.errors import ConstraintError
from raydebm.identity import canonical_json

MAX_STEPS = 100_000
MAX_FOUND = 20
"""Violations listed of one answer."""
MAX_DEPTH = 64

_steps_left: ContextVar[list[int]] = ContextVar("steps left of the schema check that runs")
_REFUSED = ("patternProperties", "$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems")


@dataclass(frozen=True, slots=True)
class SchemaFault:
    """One place that the schema does not allow."""

    path: str
    """Such as ``items[0].price``; empty for the whole value."""
    reason: str


def check_schema(schema: Any) -> None:
    """Raises ConstraintError when it is not a schema of the kind described above; the message names the place."""
    from jsonschema import Draft202012Validator, exceptions

    try:
        Draft202012Validator.check_schema(schema)
        _check_keywords(schema, "schema", 0)
    except exceptions.SchemaError as error:
        raise ConstraintError(f"{_path(error.absolute_path) or 'schema'}: {error.message:.200}") from error
    except RecursionError as error:
        raise ConstraintError("schema: nested too deeply") from error


def schema_faults(schema_text: str, value: Any) -> list[SchemaFault]:
    """What the schema does not allow in a value, at most ``MAX_FOUND`` faults.

    Args:
        schema_text: a checked schema, as JSON.
        value: any JSON value.

    Raises:
        EvaluationError: the value is too large or nested too deeply, or the schema refers to a place that is not there.
    """
    from referencing.exceptions import Unresolvable

    token = _steps_left.set([MAX_STEPS])
    try:
        _check_depth(value)
        errors = islice(_validator(schema_text).iter_errors(value), MAX_FOUND)
        return [SchemaFault(_path(error.absolute_path), error.message[:200]) for error in errors]
    except (RecursionError, ArithmeticError) as error:
        raise EvaluationError(
            "the answer is nested too deeply, or its numbers are too large, for its schema"
        ) from error
    except Unresolvable as error:
        raise EvaluationError(f"the schema refers to {str(error)[:100]}, which is not in it") from error
    finally:
        _steps_left.reset(token)


@lru_cache(maxsize=256)
def _validator(schema_text: str) -> Any:
    from jsonschema import Draft202012Validator, validators
    from referencing import Registry

    keywords = {**Draft202012Validator.VALIDATORS, "pattern": _pattern, "uniqueItems": _unique_items}
    extend: Any = validators.extend  # untyped
    bounded = extend(Draft202012Validator, {name: _counted(rule) for name, rule in keywords.items()})
    return bounded(json.loads(schema_text), registry=Registry())


def _counted(rule: Callable[..., Any]) -> Callable[..., Any]:
    def counting(validator: Any, keyword: Any, instance: Any, schema: Any) -> Iterator[Any]:
        left = _steps_left.get()
        left[0] -= 1
        if left[0] < 0:
            raise EvaluationError(f"the schema check takes more than {MAX_STEPS} steps; the answer is too large")
        yield from rule(validator, keyword, instance, schema) or ()

    return counting


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if isinstance(instance, str) and not is_found(pattern, instance):
        yield ValidationError(f"{instance[:80]!r} does not match {pattern!r}")


def _unique_items(validator: Any, wanted: bool, instance: Any, schema: Any) -> Iterator[Any]:
    """By canonical text: one look at each item, where the library compares every two."""
    from jsonschema import ValidationError

    if not (wanted and isinstance(instance, list)):
        return
    keys = {_key(element) for element in instance}
    if len(keys) < len(instance):
        yield ValidationError(f"{len(instance) - len(keys)} item(s) are repeated")


def _key(value: Any) -> str:
    try:
        return canonical_json(value)
    except (ValueError, TypeError) as error:
        raise EvaluationError(f"the answer holds what is not JSON: {error}") from error


def _check_keywords(schema: Any, where: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ConstraintError(f"{where}: nested more than {MAX_DEPTH} deep")
    if isinstance(schema, list):
        for number, part in enumerate(schema):
            _check_keywords(part, f"{where}[{number}]", depth + 1)
    if not isinstance(schema, Mapping):
        return
    for name, value in schema.items():
        here = f"{where}.{name}"
        if name in _REFUSED:
            raise ConstraintError(f"{here} is not supported here; write the allowed properties out")
        if name == "$ref" and isinstance(value, str) and not value.startswith("#"):
            raise ConstraintError(f"{here} = {value!r} leads outside the schema; use #/$defs/...")
        if name == "pattern" and isinstance(value, str):
            compile_pattern(value)
        _check_keywords(value, here, depth + 1)


def below(level: list[Any]) -> list[Any]:
    """What stands directly inside the lists and objects among some JSON values."""
    return [
        inner
        for value in level
        if isinstance(value, list | dict)
        for inner in (value.values() if isinstance(value, dict) else value)
    ]


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = below(level)
        if not level:
            return
    raise EvaluationError(f"the answer is nested more than {MAX_DEPTH} deep")


def _path(parts: Any) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return text.removeprefix(".")
