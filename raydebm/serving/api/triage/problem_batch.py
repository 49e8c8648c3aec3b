"""``POST /v1/triage/batch``: many problems in one request. One that cannot be answered fails alone."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from raydebm.decision.sampling.deadline import Deadline, now_s
from raydebm.errors import RaydebmError, ServiceError
from raydebm.serving.access.places import RequestPlaces
from raydebm.serving.access.request_limits import KeyUse
from raydebm.serving.api.headers import merged_overrides
from raydebm.serving.api.messages import read_conversation
from raydebm.serving.api.schema.decision_bodies import TriageResponse
from raydebm.serving.api.schema.request_bodies import TriageRequest, given_problem
from raydebm.serving.api.triage.bodies import triage_body
from raydebm.serving.core.request import RequestContext, charged_to, request_context
from raydebm.serving.core.service import TriageService
from raydebm.serving.error_form import error_body
from raydebm.serving.failures import as_service_error
from raydebm.serving.settings.fields import Body

log = logging.getLogger(__name__)

MAX_BATCH = 256
MAX_PARALLEL = 32
DEFAULT_PARALLEL = 8


class BatchRequest(Body):
    requests: list[dict[str, Any]] = Field(min_length=1, max_length=MAX_BATCH)
    """Each one a body of ``POST /v1/triage``."""
    max_parallel: int = Field(DEFAULT_PARALLEL, ge=1, le=MAX_PARALLEL)
    """How many are worked on at once, where there are places: each takes one, as a request of its own would."""


class BatchItem(BaseModel):
    """Exactly one of ``result`` and ``error``."""

    index: int
    """Place of the request in the batch."""
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


def triage_context(
    service: TriageService,
    body: TriageRequest,
    *,
    request_id: str,
    headers: Mapping[str, str],
    received: float | None = None,
) -> RequestContext:
    """What a body of ``POST /v1/triage`` asks for. Raises ServiceError (see ``make_ask``)."""
    overrides = merged_overrides(service.bundle, body, headers=headers)
    conversation = None if body.messages is None else read_conversation(body.messages)
    problem = body.problem if conversation is None else conversation.problem
    if problem is None:
        raise ServiceError("give exactly one of 'problem' and 'messages'", 400, "missing_text", "problem")
    context = request_context(
        service.bundle,
        overrides,
        request_id=request_id,
        task_name=overrides.task,
        problem=given_problem(problem),
        conversation=conversation,
    )
    return replace(context, num_choices=body.n, received=received)


@dataclass(frozen=True, slots=True)
class _Batch:
    """What all requests of a batch share."""

    service: TriageService
    request_id: str
    headers: Mapping[str, str]
    key_use: KeyUse
    deadline: Deadline | None
    """Deadline of the whole batch; None: it has none."""

    async def item(self, index: int, body: Mapping[str, Any]) -> BatchItem:
        request_id = f"{self.request_id}-{index}"
        try:
            left_ms = self._left_ms()
            if index:  # the first one was counted when the batch came in
                self.key_use.charge()
            return BatchItem(index=index, result=await self._answer(body, request_id, left_ms), status=200)
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            path = ".".join(str(part) for part in first["loc"])
            wrong = ServiceError(f"{path or 'body'}: {first['msg']}", 400, "invalid_request", path or None)
            return _failed(index, wrong)
        except RaydebmError as error:
            return _failed(index, as_service_error(error))
        except Exception:
            # As the guard does it for a request of its own; here the others have been paid for.
            log.exception("request %s failed", request_id)
            message = f"internal error; the log has it under request id {request_id}"
            return _failed(index, ServiceError(message, 500, "internal"))

    async def _answer(self, body: Mapping[str, Any], request_id: str, left_ms: int | None) -> TriageResponse:
        request = TriageRequest.model_validate(body)
        if request.stream:
            raise ServiceError("a batch is not streamed; leave 'stream' out", 400, "unsupported_parameter", "stream")
        context = triage_context(self.service, request, request_id=request_id, headers=self.headers)
        context = charged_to(context, self.key_use.account)
        return triage_body(await self.service.triage(replace(context, left_ms=left_ms)))

    def _left_ms(self) -> int | None:
        """Until the batch must be answered; None: it takes as long as it takes.

        Raises:
            ServiceError: 503 when a request that began now would be paid for and hardly be answered.
        """
        if self.deadline is None:
            return None
        if now_s() >= self.deadline.draw_until_s:
            message = (
                f"not begun: the {self.deadline.total_ms / 1000:g} s that a batch may take were nearly over; send it "
                "again, in a smaller batch or with a 'deadline_ms' for each request"
            )
            raise ServiceError(message, 503, "not_begun")
        return max(1, int(1000 * self.deadline.left_s()))


async def triage_batch(
    service: TriageService,
    batch: BatchRequest,
    *,
    request_id: str,
    headers: Mapping[str, str],
    received: float | None = None,
    key_use: KeyUse | None = None,
    places: RequestPlaces | None = None,
) -> BatchResponse:
    """Every request's own answer or error. Request ``i`` gets the id ``<request_id>-<i>``.

    Args:
        service: answers each.
        batch: what is asked.
        request_id: of the batch.
        headers: hold for every request.
        received: ``time.perf_counter()`` when the batch arrived; None: now.
        key_use: of the key that asks, whose limits hold for each request; None: there are none.
        places: in which the requests run, each in one; None: there are enough.
    """
    use, most_s = key_use or KeyUse(), service.bundle.max_deadline_s
    spent_s = 0.0 if received is None else time.perf_counter() - received
    deadline = None if most_s is None else Deadline.starting_now(1000 * most_s, spent_s=spent_s)
    shared = _Batch(service, request_id, headers, use, deadline)
    requests = [partial(shared.item, index, body) for index, body in enumerate(batch.requests)]
    data = await (places or RequestPlaces()).run(requests, batch.max_parallel)  # whatever ends the batch ends all of it
    return BatchResponse(
        id=f"batch-{request_id}", data=data, num_failed=sum(answer.error is not None for answer in data)
    )


def _failed(index: int, error: ServiceError) -> BatchItem:
    body = error_body(str(error), status=error.status, code=error.code, param=error.param)
    return BatchItem(index=index, error=body["error"], status=error.status)
