"""Answers as JSON, for clients that send ``response_format``: the task's parsed, canonical answer in their shape.

If the client needs an object and the answer is something else, it is wrapped in one: under the schema's only
property, else under ``answer``.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from raydebm.errors import ConstraintError, ServiceError
from raydebm.records import well_formed
from raydebm.service.routes.requests import ResponseFormat
from raydebm.tasks.base import Task
from raydebm.tasks.constraints.expressions import EvaluationError
from raydebm.tasks.constraints.schemas import Steps, check_schema, faults_of, validator_of

PARAM = "response_format"
ANSWER = "answer"
MAX_SCHEMA_CHARS = 64_000
"""Maximum length of a client's schema, as JSON."""
MAX_FORM_STEPS = 5_000
"""Limit on validation steps per request, over all choices and all shapes of each."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JsonForm:
    """JSON form requested by a client, made once per request."""

    schema: Mapping[str, Any] | None
    """The client's schema. None for any object."""
    steps: Steps = field(default_factory=lambda: Steps(MAX_FORM_STEPS))
    """Remaining validation steps of this request."""
    validator: Any = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if self.schema is not None:
            object.__setattr__(self, "validator", validator_of(self.schema))

    def content(self, answer: str) -> str:
        """The canonical answer as JSON in this form.

        Raises:
            ServiceError: 400, the answer does not fit the form.
        """
        return self._first_fitting(answer, self._shapes(answer))

    def _first_fitting(self, answer: str, values: Iterable[Any]) -> str:
        faults = []
        for value in values:
            fault = self._fault(value)
            if fault is None:
                return well_formed(json.dumps(value, ensure_ascii=False))
            faults.append(fault)
        message = f"the answer {answer[:200]!r} cannot be given in this response_format: {faults[0]}"
        raise ServiceError(message, 400, "unsupported_response_format", PARAM)

    def _shapes(self, answer: str) -> Iterator[Any]:
        """The answer itself, its text if it is not an object, and either wrapped in an object."""
        value = _value(answer)
        if isinstance(value, dict):
            yield value
            return
        plain = [value] if value == answer else [value, answer]
        yield from plain
        properties = {} if self.schema is None else self.schema.get("properties", {})
        name = next(iter(properties)) if isinstance(properties, dict) and len(properties) == 1 else ANSWER
        for shape in plain:
            yield {name: shape}

    def _fault(self, value: Any) -> str | None:
        """Error of the value under the client's schema, or None."""
        if self.schema is None:
            return None if isinstance(value, dict) else "it is not an object"
        try:
            faults = faults_of(self.validator, value, self.steps)
        except EvaluationError as error:
            return str(error)
        return f"{faults[0].path}: {faults[0].reason}".lstrip(": ") if faults else None


def json_form(wanted: ResponseFormat | None) -> JsonForm | None:
    """Requested form, or None for plain text. Checking a schema is slow: see ``read_form``.

    Raises:
        ServiceError: 400, the schema is missing, too long, or not JSON Schema.
    """
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return JsonForm(None)
    schema = (wanted.json_schema or {}).get("schema")
    if not isinstance(schema, dict):
        message = "response_format.json_schema needs the field 'schema', a JSON Schema"
        raise ServiceError(message, 400, "unsupported_response_format", PARAM)
    num_chars = len(json.dumps(schema))
    if num_chars > MAX_SCHEMA_CHARS:
        message = f"response_format.json_schema.schema has {num_chars} characters; at most {MAX_SCHEMA_CHARS} are read"
        raise ServiceError(message, 400, "unsupported_response_format", PARAM)
    try:
        check_schema(schema)
    except ConstraintError as error:
        message = f"response_format.json_schema.schema cannot be used: {error}"
        raise ServiceError(message, 400, "unsupported_response_format", PARAM) from error
    return JsonForm(schema)


async def read_form(wanted: ResponseFormat | None) -> JsonForm | None:
    """``json_form``, in a thread if there is a schema, so that other requests go on."""
    if wanted is None or wanted.type != "json_schema":
        return json_form(wanted)
    return await asyncio.to_thread(json_form, wanted)


async def written_in(form: JsonForm | None, write: Callable[[], T]) -> T:
    """Result of ``write``, in a thread if it validates against a client's schema."""
    return write() if form is None or form.schema is None else await asyncio.to_thread(write)


def format_for_endpoints(wanted: ResponseFormat | None, task: Task) -> dict[str, Any] | None:
    """``response_format`` for endpoints with constrained decoding: the task's own schema, if it has one, because
    ``parse`` reads that; a client's schema may be another shape of the same answer."""
    if wanted is None or wanted.type == "text":
        return None
    schema = getattr(task, "answer_schema", None)
    if schema is not None:
        return {"type": "json_schema", "json_schema": {"name": task.name, "schema": dict(schema)}}
    return {"type": "json_object"} if wanted.type == "json_object" else None


def _value(answer: str) -> Any:
    """The JSON value of a canonical answer, or its text if it is not JSON, for example with NaN or an infinity."""
    try:
        value = json.loads(answer)
        json.dumps(value, allow_nan=False)  # Python's parser accepts more than others, and reads 1e999 as infinity
    except (ValueError, RecursionError):
        return answer
    return value
