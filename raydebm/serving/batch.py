"""``POST /v1/triage/batch``: many problems in one request. One that cannot be answered sinks no other."""

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from raydebm.errors import RaydebmError, ServiceError
from raydebm.serving.asking import Ask, make_ask
from raydebm.serving.conversation import read_conversation
from raydebm.serving.errors import as_service_error, error_body
from raydebm.serving.overrides import merged_overrides
from raydebm.serving.schema import Body, TriageRequest, TriageResponse
from raydebm.serving.service import TriageService

MAX_BATCH = 256
MAX_PARALLEL = 32
DEFAULT_PARALLEL = 8


class BatchRequest(Body):
    requests: list[dict[str, Any]] = Field(min_length=1, max_length=MAX_BATCH)
    """Each one a body of ``POST /v1/triage``."""
    max_parallel: int = Field(DEFAULT_PARALLEL, ge=1, le=MAX_PARALLEL)
    """How many are worked on at once; they share the service with everybody else."""


class BatchItem(BaseModel):
    """Exactly one of ``result`` and ``error``."""

    index: int
    """Of the request in the batch."""
    result: TriageResponse | None = None
    error: dict[str, Any] | None = None
    """As the route alone would answer it: message, type, code, param."""
    status: int
    """As the route alone would answer it."""


class BatchResponse(BaseModel):
    id: str
    object: Literal["list"] = "list"
    data: list[BatchItem]
    """In the order of the requests."""
    num_failed: int


def triage_ask(
    service: TriageService,
    body: TriageRequest,
    *,
    request_id: str,
    headers: Mapping[str, str],
    received: float | None = None,
) -> Ask:
    """What a body of ``POST /v1/triage`` asks for. Raises ServiceError (see ``make_ask``)."""
    overrides = merged_overrides(service.bundle, body, headers=headers)
    conversation = None if body.messages is None else read_conversation(body.messages)
    problem = body.problem if conversation is None else conversation.problem
    if problem is None:
        raise ServiceError("give exactly one of 'problem' and 'messages'", 400, "missing_text", "problem")
    return make_ask(
        service.bundle,
        overrides,
        request_id=request_id,
        task_name=overrides.task,
        problem=problem,
        conversation=conversation,
        received=received,
    )


async def triage_batch(
    service: TriageService, batch: BatchRequest, *, request_id: str, headers: Mapping[str, str]
) -> BatchResponse:
    """Every request's own answer or error. Request ``i`` gets the id ``<request_id>-<i>``."""
    places = asyncio.Semaphore(batch.max_parallel)

    async def one(index: int, body: Mapping[str, Any]) -> BatchItem:
        async with places:
            return await _item(service, index, body, request_id=f"{request_id}-{index}", headers=headers)

    async with asyncio.TaskGroup() as group:  # whatever ends the batch ends all of it
        tasks = [group.create_task(one(index, body)) for index, body in enumerate(batch.requests)]
    data = [task.result() for task in tasks]
    return BatchResponse(id=f"batch-{request_id}", data=data, num_failed=sum(item.error is not None for item in data))


async def _item(
    service: TriageService, index: int, body: Mapping[str, Any], *, request_id: str, headers: Mapping[str, str]
) -> BatchItem:
    try:
        request = TriageRequest.model_validate(body)
        if request.stream:
            raise ServiceError("a batch is not streamed; leave 'stream' out", 400, "unsupported_parameter", "stream")
        ask = triage_ask(service, request, request_id=request_id, headers=headers)
        return BatchItem(index=index, result=await service.triage(ask), status=200)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        return _failed(index, ServiceError(f"{path or 'body'}: {first['msg']}", 400, "invalid_request", path or None))
    except RaydebmError as error:
        return _failed(index, as_service_error(error))


def _failed(index: int, error: ServiceError) -> BatchItem:
    body = error_body(str(error), status=error.status, code=error.code, param=error.param)
    return BatchItem(index=index, error=body["error"], status=error.status)
