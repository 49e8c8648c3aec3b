"""JSON Schema (draft 2020-12) with bounded time and without a network.

Differences from the standard: ``$ref`` must stay inside the schema, patterns are RE2, and ``$schema`` does not select
another draft. ``patternProperties``, ``unevaluatedProperties``, ``unevaluatedItems`` and dynamic references are
refused. A check ends after a fixed number of steps.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice
from typing import Any

from raydebm.errors import ConstraintError
from raydebm.tasks.constraints.expressions import EvaluationError, key_of
from raydebm.tasks.constraints.patterns import compile_pattern, is_found

MAX_STEPS = 100_000
MAX_FOUND = 20
"""Maximum number of violations found per answer."""
MAX_DEPTH = 64
MAX_TYPES = 16
"""Maximum number of names in one ``type``; the standard has seven."""
_ENTRIES_PER_STEP = 100
"""Number of entries of a keyword's list or object that take one more step."""

_REFUSED = ("patternProperties", "$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems")


@dataclass(frozen=True, slots=True)
class SchemaFault:
    """One violation of the schema."""

    path: str
    """Path such as ``items[0].price``; empty for the whole value."""
    reason: str


@dataclass(slots=True)
class Steps:
    """Limit on the steps of one or several checks, and the number of steps taken."""

    limit: int = MAX_STEPS
    taken: int = 0

    def take(self, num: int) -> None:
        """Count steps. Raises EvaluationError above the limit."""
        self.taken += num
        if self.taken > self.limit:
            raise EvaluationError(f"the schema check takes more than {self.limit} steps; the answer is too large")


_steps: ContextVar[Steps] = ContextVar("steps of the schema check that runs")


def check_schema(schema: Any) -> None:
    """Raise ConstraintError for anything other than a schema as described above; the message names the place."""
    from jsonschema import Draft202012Validator, exceptions

    try:
        _check_keywords(schema, "schema", 0)
        Draft202012Validator.check_schema(schema)
    except exceptions.SchemaError as error:
        raise ConstraintError(f"{_path(error.absolute_path) or 'schema'}: {error.message:.200}") from error
    except RecursionError as error:
        raise ConstraintError("schema: nested too deeply") from error


def schema_faults(schema_text: str, value: Any) -> list[SchemaFault]:
    """Violations of a task's checked schema, which is a JSON text (see ``faults_of``). Parsed schemas are cached."""
    return faults_of(_cached_validator(schema_text), value, Steps())


def faults_of(validator: Any, value: Any, steps: Steps) -> list[SchemaFault]:
    """Violations of a schema (see ``validator_of``), at most ``MAX_FOUND``. The check adds to the steps taken.

    Raises:
        EvaluationError: the value is too large or nested too deeply, or the schema has a dangling reference.
    """
    from referencing.exceptions import Unresolvable

    token = _steps.set(steps)
    try:
        _check_depth(value)
        errors = islice(validator.iter_errors(value), MAX_FOUND)
        return [SchemaFault(_path(error.absolute_path), error.message[:200]) for error in errors]
    except (RecursionError, ArithmeticError) as error:
        raise EvaluationError(
            "the answer is nested too deeply, or its numbers are too large, for its schema"
        ) from error
    except Unresolvable as error:
        raise EvaluationError(f"the schema refers to {str(error)[:100]}, which is not in it") from error
    finally:
        _steps.reset(token)


def validator_of(schema: Any) -> Any:
    """Validator of a checked schema, for ``faults_of``."""
    from referencing import Registry

    if isinstance(schema, Mapping):  # with it, "$ref": "#" would switch to the unbounded validator of its draft
        schema = {name: value for name, value in schema.items() if name != "$schema"}
    return _bounded()(schema, registry=Registry())


@lru_cache(maxsize=256)
def _cached_validator(schema_text: str) -> Any:
    """Cached validator of a task's schema. Clients' schemas are not cached, because they could fill the memory."""
    return validator_of(json.loads(schema_text))


@cache
def _bounded() -> Any:
    from jsonschema import Draft202012Validator, validators

    keywords = {**Draft202012Validator.VALIDATORS, "pattern": _pattern, "uniqueItems": _unique_items}
    extend: Any = validators.extend  # untyped
    return extend(Draft202012Validator, {name: _counted(rule) for name, rule in keywords.items()})


def _counted(rule: Callable[..., Any]) -> Callable[..., Any]:
    def counting(validator: Any, keyword: Any, instance: Any, schema: Any) -> Iterator[Any]:
        _steps.get().take(1 + (len(keyword) // _ENTRIES_PER_STEP if isinstance(keyword, list | dict) else 0))
        yield from rule(validator, keyword, instance, schema) or ()

    return counting


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if isinstance(instance, str) and not is_found(pattern, instance):
        yield ValidationError(f"{instance[:80]!r} does not match {pattern!r}")


def _unique_items(validator: Any, wanted: bool, instance: Any, schema: Any) -> Iterator[Any]:
    """Find repeated items by canonical text. The library would compare every pair."""
    from jsonschema import ValidationError

    if not (wanted and isinstance(instance, list)):
        return
    keys = set(map(key_of, instance))
    if len(keys) < len(instance):
        yield ValidationError(f"{len(instance) - len(keys)} item(s) are repeated")


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
            raise ConstraintError(f"{here} = {value!r} refers to a place outside the schema; use #/$defs/...")
        if name == "$schema" and isinstance(value, str) and depth > 0:
            raise ConstraintError(f"{here} is not supported here; only the whole schema may name its draft")
        if name == "type" and isinstance(value, list) and len(value) > MAX_TYPES:
            raise ConstraintError(f"{here} has {len(value)} names; at most {MAX_TYPES} are allowed")
        if name == "pattern" and isinstance(value, str):
            compile_pattern(value)
        _check_keywords(value, here, depth + 1)


def below(level: list[Any]) -> list[Any]:
    """Direct elements of the lists and objects among some JSON values."""
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
