"""How often, how patiently and for how much an endpoint may be asked. Pure: clocks and chances come in as arguments."""

import email.utils
import math
from collections.abc import Mapping
from dataclasses import dataclass

from raydebm.generators.journal import Journal

MAX_WAIT_S = 60.0
"""No single wait is longer, whatever ``Retry-After`` asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponential, jittered: the wait before retry i (from 0) is in [half, whole] of ``base_s * 2**i``."""

    base_s: float = 0.5
    max_s: float = MAX_WAIT_S

    def wait_s(self, attempt: int, *, chance: float, retry_after_s: float | None = None) -> float:
        """Seconds to wait; ``chance`` in [0, 1) is the jitter. A server's own wish counts when it is longer."""
        whole = min(self.max_s, self.base_s * 2.0**attempt)
        jittered = whole * (0.5 + 0.5 * chance)
        return min(self.max_s, max(jittered, retry_after_s or 0.0))


def retry_after_s(headers: Mapping[str, str], *, now: float) -> float | None:
    """Seconds asked for by ``Retry-After`` (a number or an HTTP date); None without a readable one.

    Args:
        headers: names in lower case.
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
    """Spreads requests evenly over the minute. After a quiet second, one second's worth may go at once."""

    def __init__(self, requests_per_minute: float | None) -> None:
        self._interval_s = 0.0 if requests_per_minute is None else 60.0 / requests_per_minute
        self._next_free = float("-inf")

    def wait_s(self, now: float) -> float:
        """Seconds until a request may be sent."""
        return max(0.0, self._next_free - now)

    def take(self, now: float) -> None:
        """A request is sent. A caller that stops waiting takes nothing, so that others do not wait for it."""
        self._next_free = max(self._next_free, now - max(0.0, 1.0 - self._interval_s)) + self._interval_s


class Budget:
    """Stops spending. Requests in flight when the limit is reached still finish, so it can be passed by their cost.

    With a journal, what other processes and earlier runs spent counts too, on failed requests as well.
    """

    def __init__(self, max_usd: float | None, journal: Journal | None = None, *, elsewhere_usd: float = 0.0) -> None:
        """
        Args:
            elsewhere_usd: what was spent before and does not stand in this journal.
        """
        self._max_usd = max_usd
        self._journal = journal
        self._elsewhere_usd = elsewhere_usd
        self._own_usd = 0.0

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit in dollars."""
        return self._max_usd is not None

    @property
    def spent_usd(self) -> float:
        """Dollars spent by this process, by others on the same journal, and before."""
        journaled_usd = self._journal.read_usd if self._journal is not None else 0.0
        return self._elsewhere_usd + self._own_usd + journaled_usd

    @property
    def left_usd(self) -> float:
        """Dollars that may still be spent; infinite without a limit."""
        if self._max_usd is None:
            return math.inf
        if self._journal is not None:
            self._journal.catch_up()
        return self._max_usd - self.spent_usd

    def add(self, cost_usd: float | None) -> None:
        """Add the cost of an answer; None is a cost that the endpoint did not state."""
        self._own_usd += cost_usd or 0.0

    def add_lost(self, cost_usd: float | None) -> None:
        """Count what this process has just spent, or may have spent, on no answer.

        The journal keeps it for other processes and later runs, to whom no answer will tell it.

        Raises:
            OSError: the journal's disk is full or gone.
        """
        self.add(cost_usd)
        if cost_usd and self._journal is not None:
            self._journal.put_lost(cost_usd)

    def refusal(self) -> str | None:
        """Reason why no more requests may be sent; None while the budget lasts."""
        if self._max_usd is None or self.left_usd > 0:
            return None
        return (
            f"budget of ${self._max_usd:g} reached (spent ${self.spent_usd:.4f}); raise generation.max_usd and repeat "
            "the command with --retry-failed"
        )
