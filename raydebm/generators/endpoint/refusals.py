"""What an endpoint refuses, so that requests that would meet the same are not sent for a while.

Pure: the clock comes in as an argument. Does not know: HTTP, what a refusal looks like.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from raydebm.records import GenerationRequest

PAUSE_S = 30.0
"""So long requests fail at once after a refusal that they would meet as well."""
PROBLEMS_IN_A_ROW = 3
"""A refusal that may be one request's own fault is taken for everybody's after so many problems without a success."""
MAX_SHAPES = 64
"""Kinds of refused requests that are remembered; clients of a service choose them."""


@dataclass(slots=True)
class _Doubt:
    """Refusals in a row of requests of one shape."""

    problem_ids: set[str] = field(default_factory=set)
    smallest: int = 0
    """Characters of the shortest refused prompt."""
    since: float | None = None
    """When enough problems had been refused."""
    reason: str = ""


class Refusals:
    """What one endpoint has refused."""

    def __init__(self) -> None:
        self._all: tuple[float, str] | None = None
        self._doubts: OrderedDict[Hashable, _Doubt] = OrderedDict()

    def note_all(self, reason: str, *, now: float) -> None:
        """No request to this endpoint can succeed: a wrong key."""
        self._all = (now, reason)

    def note_doubtful(self, request: GenerationRequest, reason: str, *, now: float) -> None:
        """Refused for what may be the account's or the model's fault, or that of this request alone.

        Others are spared the journey only where they ask for the same: the same response format and as many tokens,
        with a prompt that is not shorter.
        """
        shape, size = _shape(request), _size(request)
        doubt = self._doubts.pop(shape, None) or _Doubt(smallest=size)
        self._doubts[shape] = doubt
        doubt.smallest = min(doubt.smallest, size)
        if len(doubt.problem_ids) < PROBLEMS_IN_A_ROW:
            doubt.problem_ids.add(request.problem_id)
        if len(doubt.problem_ids) >= PROBLEMS_IN_A_ROW:
            doubt.since, doubt.reason = now, reason
        if len(self._doubts) > MAX_SHAPES:
            self._doubts.popitem(last=False)

    def note_success(self, request: GenerationRequest) -> None:
        """Clear suspected refusals of requests of this shape."""
        self._doubts.pop(_shape(request), None)

    def standing(self, request: GenerationRequest, *, now: float) -> str | None:
        """The known refusal that applies to this request too; None where it should be sent."""
        if self._all is not None and now - self._all[0] < PAUSE_S:
            return self._all[1]
        doubt = self._doubts.get(_shape(request))
        if doubt is None or doubt.since is None or now - doubt.since >= PAUSE_S or _size(request) < doubt.smallest:
            return None
        return doubt.reason


def _shape(request: GenerationRequest) -> Hashable:
    return request.response_format, request.sampling.max_tokens


def _size(request: GenerationRequest) -> int:
    return sum(len(message["content"]) for message in request.messages)
