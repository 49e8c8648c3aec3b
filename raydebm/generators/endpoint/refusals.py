"""Refusals of an endpoint, so that requests that would fail for the same reason are not sent for a while.

Pure: the clock is an argument. Does not know: HTTP, the form of a refusal.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from raydebm.records import GenerationRequest

PAUSE_S = 30.0
"""Time after a refusal in which matching requests fail at once."""
PROBLEMS_IN_A_ROW = 3
"""Number of refused problems without a success after which a doubtful refusal counts for matching requests."""
MAX_SHAPES = 64
"""Limit on remembered request shapes, which a service's clients choose."""


@dataclass(slots=True)
class _Doubt:
    """Consecutive refusals of requests of one shape."""

    problem_ids: set[str] = field(default_factory=set)
    smallest: int = 0
    """Characters of the shortest refused prompt."""
    since: float | None = None
    """Time at which enough problems were refused."""
    reason: str = ""


class Refusals:
    """Refusals of one endpoint."""

    def __init__(self) -> None:
        self._all: tuple[float, str] | None = None
        self._doubts: OrderedDict[Hashable, _Doubt] = OrderedDict()

    def note_all(self, reason: str, *, now: float) -> None:
        """Record a refusal that holds for every request, such as a wrong key."""
        self._all = (now, reason)

    def note_doubtful(self, request: GenerationRequest, reason: str, *, now: float) -> None:
        """Record a refusal that may concern the account, the model, or this request alone.

        It applies only to requests with the same response format and token limit, and a prompt that is not shorter.
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
        """Forget doubtful refusals of requests like this one (same response format and token limit)."""
        self._doubts.pop(_shape(request), None)

    def applying_to(self, request: GenerationRequest, *, now: float) -> str | None:
        """The known refusal that applies to this request; None if it should be sent."""
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
