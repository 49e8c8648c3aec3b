"""Several servers of one model behind one transport, with load balancing and failover.

Requests go to the least busy server. A server that is unreachable, or answers 502 or 503, has not processed the
request, so the next one is tried at once, and the failed one rests for a while. Late replies and other statuses are
handled by the generator, which may have to pay for them.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from raydebm.generators.endpoint.transports import Body, CarrierError, LostReplyError, Transport
from raydebm.generators.replies import HttpReply

REST_S = 30.0
"""Time in which a failed server gets no requests."""
_NOT_TAKEN = frozenset({502, 503})


@dataclass(slots=True, eq=False)
class _Replica:
    url: str
    transport: Transport
    num_open: int = 0
    rests_until: float = float("-inf")


class Replicas:
    """A transport over several servers of the same model. For one event loop."""

    def __init__(
        self,
        transports: Mapping[str, Transport],
        *,
        rest_s: float = REST_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with all servers available.

        Args:
            transports: transports by URL; the first of equally busy ones is asked.
            rest_s: time in which a failed server gets no requests, unless all have failed.
        """
        self._replicas = [_Replica(url, transport) for url, transport in transports.items()]
        self._rest_s = rest_s
        self._clock = clock

    async def post(self, body: Body) -> HttpReply:
        """Ask the servers one after another until one takes the request.

        Raises:
            LostReplyError: a server took the request, and its reply was late or broke off.
            CarrierError: no server could be reached.
        """
        left = list(self._replicas)
        while True:
            replica = self._choose(left)
            left.remove(replica)
            try:
                reply = await self._ask(replica, body)
            except LostReplyError:
                raise
            except CarrierError as error:
                if not left:
                    message = f"none of {len(self._replicas)} servers took the request; last {replica.url}: {error}"
                    raise CarrierError(message) from error
            else:
                if reply.status not in _NOT_TAKEN or not left:
                    return reply
                self._let_rest(replica)

    async def aclose(self) -> None:
        """Close the connections to all servers."""
        for replica in self._replicas:
            await replica.transport.aclose()

    async def _ask(self, replica: _Replica, body: Body) -> HttpReply:
        replica.num_open += 1
        try:
            return await replica.transport.post(body)
        except CarrierError:
            self._let_rest(replica)
            raise
        finally:
            replica.num_open -= 1

    def _choose(self, left: list[_Replica]) -> _Replica:
        """The least busy server that does not rest; if all rest, the one that has rested longest."""
        awake = [replica for replica in left if replica.rests_until <= self._clock()]
        if awake:
            return min(awake, key=lambda replica: replica.num_open)
        return min(left, key=lambda replica: replica.rests_until)

    def _let_rest(self, replica: _Replica) -> None:
        replica.rests_until = self._clock() + self._rest_s
