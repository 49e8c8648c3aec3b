"""Answers as JSON, for clients that ask for ``response_format``: the task's parsed, canonical answer in their shape.

An answer that is no object stands in one where the client needs an object: under the schema's only property, else under
``answer``.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from raydebm.constraints.expressions import EvaluationError
from raydebm.constraints.schemas import check_schema, schema_faults
from raydebm.errors import ConstraintError, ServiceError
from raydebm.serving.api.schema.request_bodies import ResponseFormat
from raydebm.tasks.base import Task

PARAM = "response_format"
ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class JsonForm:
    """The JSON that a client wants to read."""

    schema: Mapping[str, Any] | None
    """None: any object."""

    def content(self, answer: str) -> str:
        """The canonical answer as JSON in this form.

        Raises:
            ServiceError: 400, the answer has another form.
        """
        return self._first_fitting(answer, self._shapes(answer))

    def as_written(self, text: str) -> str:
        """A generator's own JSON, in ordinary chat; nothing is put into a shape that it did not write.

        Raises:
            ServiceError: 400, the text is no JSON of this form.
        """
        return self._first_fitting(text, [_value(text)])

    def _first_fitting(self, answer: str, values: Iterable[Any]) -> str:
        faults = []
        for value in values:
            fault = self._fault(value)
            if fault is None:
                return json.dumps(value, ensure_ascii=False)
            faults.append(fault)
        message = f"the answer {answer[:200]!r} cannot be given in this response_format: {faults[0]}"
        raise ServiceError(message, 400, "unsupported_response_format", PARAM)

    def _shapes(self, answer: str) -> Iterator[Any]:
        """What the answer may be written as: itself, its text, and either in an object."""
        value = _value(answer)
        plain = [value] if value == answer else [value, answer]
        yield from plain
        properties = {} if self.schema is None else self.schema.get("properties", {})
        name = next(iter(properties)) if isinstance(properties, dict) and len(properties) == 1 else ANSWER
        for shape in plain:
            yield {name: shape}

    def _fault(self, value: Any) -> str | None:
        """Why the client could not read the value; None: it can."""
        if self.schema is None:
            return None if isinstance(value, dict) else "it is no object"
        try:
            faults = schema_faults(json.dumps(self.schema, sort_keys=True), value)
        except EvaluationError as error:
            return str(error)
        return f"{faults[0].path}: {faults[0].reason}".lstrip(": ") if faults else None


def json_form(wanted: ResponseFormat | None) -> JsonForm | None:
    """The form that a request asks for; None: plain text.

    Raises:
        ServiceError: 400, its schema is missing or is no JSON Schema.
    """
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return JsonForm(None)
    schema = (wanted.json_schema or {}).get("schema")
    if not isinstance(schema, dict):
        message = "response_format.json_schema needs the field 'schema', a JSON Schema"
        raise ServiceError(message, 400, "unsupported_response_format", PARAM)
    try:
        check_schema(schema)
    except ConstraintError as error:
        message = f"response_format.json_schema.schema cannot be used: {error}"
        raise ServiceError(message, 400, "unsupported_response_format", PARAM) from error
    return JsonForm(schema)


def format_for_endpoints(wanted: ResponseFormat | None, task: Task) -> dict[str, Any] | None:
    """What endpoints that constrain decoding are asked for: the task's own schema where it has one, for that is what
    ``parse`` reads; a client's schema may be another shape of the same answer."""
    if wanted is None or wanted.type == "text":
        return None
    schema = getattr(task, "answer_schema", None)
    if schema is not None:
        return {"type": "json_schema", "json_schema": {"name": task.name, "schema": dict(schema)}}
    return {"type": "json_object"} if wanted.type == "json_object" else None


def _value(answer: str) -> Any:
    """The JSON value of a canonical answer; the text itself where it is not JSON."""
    try:
        return json.loads(answer)
    except (ValueError, RecursionError):
        return answer
