"""A service at which hundreds of connections trickle: requests that are begun and never end.

    python tests/damage/trickling_connections.py --connections 500 --seconds 60

Half of the connections send a header line every second and never the last one, the others a whole head and a byte of
the body every second. One that the service answers or closes is opened again. Before and meanwhile a few clients ask as
usual: every one of their requests must be answered rightly.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parent))  # for the module beside this one

from loaded_service import Asked, Load, Service, p50_p99, service

EVERY_S = 1.0
BODY_BYTES = 100_000
"""What a trickling body announces: more than a minute of it."""


@dataclass(slots=True)
class Trickle:
    """Connections that trickle."""

    url: str
    ended: Counter[str] = field(default_factory=Counter)
    """How often each status was the answer; ``closed`` without one."""

    async def run(self, count: int) -> None:
        """Until it is cancelled."""
        await asyncio.gather(*(self._connection(has_body=bool(number % 2)) for number in range(count)))

    async def _connection(self, *, has_body: bool) -> None:
        address = urlsplit(self.url)
        while True:
            answer = b""
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(address.hostname, address.port)
                try:
                    answer = await self._send(reader, writer, has_body=has_body)
                finally:
                    writer.close()
            self.ended[answer[9:12].decode() or "closed"] += 1  # HTTP/1.1 408 ...
            await asyncio.sleep(EVERY_S)

    async def _send(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, has_body: bool) -> bytes:
        """The beginning of what the service says; nothing when it closes the connection."""
        host = urlsplit(self.url).netloc.encode()
        head = b"POST /v1/triage HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n" % host
        writer.write(head + (b"Content-Length: %d\r\n\r\n" % BODY_BYTES if has_body else b""))
        while True:
            writer.write(b" " if has_body else b"X-More: 1\r\n")
            await writer.drain()
            with suppress(TimeoutError):
                return await asyncio.wait_for(reader.read(65_536), EVERY_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the clients got."""

    before: Sequence[Asked]
    meanwhile: Sequence[Asked]
    ended: Counter[str]
    memory_mib: tuple[float, float]
    """Before, and at the end."""

    @property
    def failed(self) -> list[str]:
        return [each.detail for each in (*self.before, *self.meanwhile) if each.came_to != "answered"]


async def trickled(served: Service, *, connections: int, num_clients: int, seconds: float) -> Outcome:
    """Ask a service for so long without, and as long with such connections."""
    load, trickle = Load(served.url), Trickle(served.url)
    clients = asyncio.create_task(load.run(num_clients))
    await asyncio.sleep(seconds)
    memory, begun = served.memory_mib(), time.monotonic()
    connected = asyncio.create_task(trickle.run(connections))
    await asyncio.sleep(seconds)
    load.stopping = True
    await clients
    at_end = served.memory_mib()
    connected.cancel()
    with suppress(asyncio.CancelledError):
        await connected
    return Outcome(
        before=[each for each in load.asked if each.ended < begun],
        meanwhile=[each for each in load.asked if each.begun >= begun],
        ended=trickle.ended,
        memory_mib=(memory, at_end),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as served:
        outcome = asyncio.run(
            trickled(served, connections=given.connections, num_clients=given.clients, seconds=given.seconds)
        )
    for name, asked in (("before", outcome.before), ("meanwhile", outcome.meanwhile)):
        p50_s, p99_s = p50_p99(asked)
        sys.stdout.write(f"{name}: {len(asked)} requests, p50 {p50_s:.2f} s, p99 {p99_s:.2f} s\n")
    before_mib, end_mib = outcome.memory_mib
    sys.stdout.write(
        f"{given.connections} connections trickled, ended {dict(outcome.ended)}; memory {before_mib:.0f} and "
        f"{end_mib:.0f} MiB\n" + "".join(f"failed: {each}\n" for each in outcome.failed)
    )
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
