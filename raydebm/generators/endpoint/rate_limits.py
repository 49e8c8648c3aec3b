"""Rate, retries, budget and refusals of an endpoint. Times and random numbers are arguments."""

import email.utils
import math
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from raydebm.generators.journal import Journal
from raydebm.records import GenerationRequest

MAX_WAIT_S = 60.0
"""Maximum of a single wait, even if ``Retry-After`` asks for more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponential backoff with jitter: the wait before retry i (from 0) is 0.5 to 1 times ``base_s * 2**i``."""

    base_s: float = 0.5
    max_s: float = MAX_WAIT_S

    def wait_s(self, attempt: int, *, chance: float, retry_after_s: float | None = None) -> float:
        """Seconds to wait. ``chance`` in [0, 1) is the jitter. A longer ``Retry-After`` is used instead."""
        whole = min(self.max_s, self.base_s * 2.0**attempt)
        jittered = whole * (0.5 + 0.5 * chance)
        return min(self.max_s, max(jittered, retry_after_s or 0.0))


def retry_after_s(headers: Mapping[str, str], *, now: float) -> float | None:
    """Seconds in ``Retry-After`` (a number or an HTTP date). None if missing or unreadable.

    Args:
        headers: headers by lower-case name.
        now: Unix time in seconds.
    """
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError):
        return None


class RateLimit:
    """Limit per minute that spreads requests evenly. After an idle second, one second's worth may be sent at once."""

    def __init__(self, requests_per_minute: float | None) -> None:
        self._interval_s = 0.0 if requests_per_minute is None else 60.0 / requests_per_minute
        self._next_free = float("-inf")

    def wait_s(self, now: float) -> float:
        """Seconds until a request may be sent."""
        return max(0.0, self._next_free - now)

    def take(self, now: float) -> None:
        """Record a sent request. A caller that stops waiting records nothing, so that others do not wait for it."""
        self._next_free = max(self._next_free, now - max(0.0, 1.0 - self._interval_s)) + self._interval_s


class Budget:
    """Spending limit. Requests in flight still finish when the limit is reached, so spending may exceed it.

    With a journal, the costs of other processes and earlier runs count too, including those of failed requests.
    """

    def __init__(self, max_usd: float | None, journal: Journal | None = None, *, elsewhere_usd: float = 0.0) -> None:
        """Count the costs in the journal, which all generators under the limit share, and ``elsewhere_usd`` of other
        journals. Without a journal, only this process counts. Without ``max_usd``, there is no limit."""
        self._max_usd = max_usd
        self._journal = journal
        self._elsewhere_usd = elsewhere_usd
        self._own_usd = 0.0

    @property
    def is_limited(self) -> bool:
        return self._max_usd is not None

    @property
    def spent_usd(self) -> float:
        """US dollars spent by this process, by others with the same journal, by earlier runs, and elsewhere."""
        journaled_usd = self._journal.read_usd if self._journal is not None else 0.0
        return self._elsewhere_usd + self._own_usd + journaled_usd

    @property
    def left_usd(self) -> float:
        """US dollars left. Infinite without a limit."""
        if self._max_usd is None:
            return math.inf
        if self._journal is not None:
            self._journal.catch_up()
        return self._max_usd - self.spent_usd

    def add(self, cost_usd: float | None) -> None:
        """Add the cost of an answer. None if unknown."""
        self._own_usd += cost_usd or 0.0

    def add_lost(self, cost_usd: float | None) -> None:
        """Add an actual or possible cost of a request without an answer. The journal stores it for other processes
        and later runs. Raises OSError if the journal's disk is full or gone."""
        self.add(cost_usd)
        if cost_usd and self._journal is not None:
            self._journal.put_lost(cost_usd)

    def refusal(self) -> str | None:
        """Reason for refusing more requests. None while budget is left."""
        if self._max_usd is None or self.left_usd > 0:
            return None
        return (
            f"budget of ${self._max_usd:g} reached (spent ${self.spent_usd:.4f}); raise generation.max_usd and repeat "
            "the command with --retry-failed"
        )


PAUSE_S = 30.0
"""Seconds after a refusal during which matching requests fail without being sent."""
PROBLEMS_IN_A_ROW = 3
"""Number of refused problems without a success after which a doubtful refusal counts for matching requests."""
MAX_SHAPES = 64
"""Maximum number of remembered request shapes (response format and token limit), which a service's clients choose."""


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
    def __init__(self) -> None:
        self._all: tuple[float, str] | None = None
        self._doubts: OrderedDict[Hashable, _Doubt] = OrderedDict()

    def note_all(self, reason: str, *, now: float) -> None:
        """Record a refusal that applies to every request, such as a wrong key."""
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
        """The known refusal that applies to this request. None if the request should be sent."""
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
