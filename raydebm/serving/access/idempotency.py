"""Requests with an ``Idempotency-Key``: a repetition gets the first one's answer, and nothing is paid for twice.

A key belongs to who sends it, and to one path, body and set of settings in headers. While its request runs, a
repetition is answered 409; later it gets the stored answer, also where the first one was lost on its way to the client.
A client that goes away before there is an answer ends the work, and the same key begins it again. A request whose
replica died is neither repeated nor forgotten: candidates may have been paid for, and the client decides whether to pay
again, with a new key. A replica renews its requests while they run, so that clients are told within ``LEASE_S``.
Does not know: tasks, decisions, Ray.
"""

import asyncio
import contextlib
import hashlib
import json
import math
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.types import Message, Scope, Send

from raydebm.errors import ResourceError, ServiceError
from raydebm.serving.settings.overrides import HEADER_PREFIX
from raydebm.serving.spending.sqlite_file import SqliteFile
from raydebm.serving.spending.undoable import done_or_undone

HEADER = b"idempotency-key"
KEY_PATTERN = re.compile(r"[\x21-\x7e]{1,255}")
KEEP_S = 24 * 3600.0
"""How long an answer is kept, as long as other services keep theirs."""
LEASE_S, RENEW_S = 30.0, 8.0
"""A request that was not renewed for so long has lost its replica, and how often replicas renew those that run. One
that stands still for longer is taken for dead; the answer that it gives after all is kept."""
MAX_ANSWER_BYTES = 1_000_000
MAX_TOTAL_BYTES = 500_000_000
"""Most bytes of all answers together. Beyond it the older half goes; its keys stay, and are not run again."""
REPLAYED = (b"idempotent-replayed", b"true")
_NOT_STORED = frozenset({408, 409, 425, 429, 499})
"""Refusals that say nothing about the request itself: the same key may try again."""
EVENT_STREAM = b"text/event-stream"
_DATA, _FAILURE = b"data: ", "should_retry"
"""How a line of an event with data begins, and the field that only events about failures have; one of that name may
stand deeper in others, as in what a client has given back to it."""
_TABLES = """
CREATE TABLE IF NOT EXISTS requests (
  owner TEXT, key TEXT, fingerprint TEXT, begun REAL, ends REAL, status INTEGER, headers TEXT, body BLOB,
  PRIMARY KEY (owner, key));
CREATE INDEX IF NOT EXISTS requests_begun ON requests (begun);
CREATE INDEX IF NOT EXISTS requests_sizes ON requests (begun, length(body));
"""
_TOTAL = "SELECT coalesce(sum(length(body)), 0) FROM requests INDEXED BY requests_sizes"
_DROP_OLDEST = """
UPDATE requests SET body = NULL WHERE rowid IN (
  SELECT rowid FROM (
    SELECT rowid, sum(length(body)) OVER (ORDER BY begun DESC, rowid DESC) AS total FROM requests) WHERE total > ?)
"""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """What a finished request was answered."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes | None
    """None: it was larger than ``MAX_ANSWER_BYTES``, or newer ones needed the room."""


class IdempotencyStore:
    """Keys with their requests and answers, in a SQLite file that all ingress replicas share."""

    def __init__(self, path: str, *, across_nodes: bool = False, clock: Callable[[], float] = time.time) -> None:
        """
        Args:
            path: of the file; ``":memory:"``: this process alone knows the keys.
            across_nodes: see ``SqliteFile``.
            clock: seconds.
        """
        self._file = SqliteFile(path, tables=_TABLES, name="file of idempotency keys", across_nodes=across_nodes)
        self._clock = clock

    def begin(self, owner: str, key: str, fingerprint: str) -> StoredAnswer | None:
        """Take the key for a new request (None), or return what its request was answered.

        Raises:
            ServiceError: 409 while the first request runs, or when its answer was lost; 422 for a key that was used for
                another request.
            ResourceError: the file cannot be used.
        """
        now = self._clock()
        with self._file.transaction() as db:
            db.execute("DELETE FROM requests WHERE begun < ?", (now - KEEP_S,))
            row = db.execute(
                "SELECT fingerprint, ends, status, headers, body FROM requests WHERE owner = ? AND key = ?",
                (owner, key),
            ).fetchone()
            if row is None:
                db.execute(
                    "INSERT INTO requests VALUES (?, ?, ?, ?, ?, NULL, NULL, NULL)",
                    (owner, key, fingerprint, now, now + LEASE_S),
                )
                return None
        known, ends, status, headers, body = row
        if known != fingerprint:
            raise ServiceError(
                f"the Idempotency-Key {key!r} was used for another request; send a new key",
                422,
                "idempotency_key_reused",
            )
        if status is None:
            raise _running(key) if now < ends else _lost(key)
        return StoredAnswer(
            status, [(name.encode("latin-1"), value.encode("latin-1")) for name, value in json.loads(headers)], body
        )

    def renew(self, owner: str, key: str) -> None:
        """Say that the request still runs. Raises ResourceError."""
        with self._file.transaction() as db:
            db.execute(
                "UPDATE requests SET ends = ? WHERE owner = ? AND key = ? AND status IS NULL",
                (self._clock() + LEASE_S, owner, key),
            )

    def finish(self, owner: str, key: str, answer: StoredAnswer) -> None:
        """Keep the answer. Raises ResourceError."""
        headers = json.dumps([(name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers])
        with self._file.transaction() as db:
            db.execute(
                "UPDATE requests SET status = ?, headers = ?, body = ? WHERE owner = ? AND key = ?",
                (answer.status, headers, answer.body, owner, key),
            )
            (total,) = db.execute(_TOTAL).fetchone()
            if total > MAX_TOTAL_BYTES:
                db.execute(_DROP_OLDEST, (MAX_TOTAL_BYTES // 2,))

    def forget(self, owner: str, key: str) -> None:
        """Let the key be used again. Raises ResourceError."""
        with self._file.transaction() as db:
            db.execute("DELETE FROM requests WHERE owner = ? AND key = ? AND status IS NULL", (owner, key))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _running(key: str) -> ServiceError:
    return ServiceError(
        f"the request with Idempotency-Key {key!r} is still running; ask again later", 409, "idempotency_key_in_use"
    )


def _lost(key: str) -> ServiceError:
    return ServiceError(
        f"the request with Idempotency-Key {key!r} was begun and its answer was lost; what it sampled may have been "
        "paid for. To run it again, send a new key",
        409,
        "idempotency_answer_lost",
        retry=False,
    )


def key_of(scope: Scope) -> str | None:
    """The request's key; None without one.

    Raises:
        ServiceError: 400, the key is empty, longer than 255 characters, or not of printable ASCII.
    """
    header = next((value.decode("latin-1") for name, value in scope["headers"] if name == HEADER), None)
    if header is not None and not KEY_PATTERN.fullmatch(header):
        raise ServiceError(
            f"Idempotency-Key must be 1 to 255 printable ASCII characters without blanks, got {header[:300]!r}",
            400,
            "bad_idempotency_key",
        )
    return header


async def answer_once(
    store: IdempotencyStore,
    scope: Scope,
    body: bytes,
    send: Send,
    work: Callable[[Send], Awaitable[None]],
    *,
    owner: str,
) -> None:
    """Answer a request by ``work``, or with what the first request with its key was answered.

    Args:
        store: knows the keys.
        scope: of the request.
        body: of the request.
        send: where the answer goes.
        work: answers the request through what it is given.
        owner: digest of the API key (see ``KeyUse.owner``): one that is issued again under an old name gets none of the
            old one's answers.

    Raises:
        ServiceError: see ``key_of`` and ``IdempotencyStore.begin``.
        ResourceError: the store's file cannot be used, so nothing was begun.
    """
    key = key_of(scope)
    if key is None:
        await work(send)
        return

    def give_back(answer: StoredAnswer | None) -> None:
        if answer is None:  # the key was taken, for a request that has not begun
            store.forget(owner, key)

    answer = await done_or_undone(lambda: store.begin(owner, key, _fingerprint(scope, body)), give_back)
    if answer is not None:
        await _replay(answer, key, send)
        return
    copy, renewing = _Copy(send), asyncio.create_task(_renew(store, owner, key))
    try:
        await work(copy.send)
    finally:  # a client that went away while it was answered may ask for the answer again
        renewing.cancel()
        if copy.is_final:
            await asyncio.shield(asyncio.to_thread(store.finish, owner, key, copy.answer()))
        else:
            await asyncio.shield(asyncio.to_thread(store.forget, owner, key))


async def _renew(store: IdempotencyStore, owner: str, key: str) -> None:
    while True:
        await asyncio.sleep(RENEW_S)
        with contextlib.suppress(ResourceError):  # the next one may succeed
            await asyncio.to_thread(store.renew, owner, key)


def _fingerprint(scope: Scope, body: bytes) -> str:
    """Digest of all that settles the answer: method, path, query, the settings in headers, and body."""
    digest = hashlib.sha256(f"{scope['method']} {scope['path']}?".encode())
    digest.update(scope.get("query_string", b"") + b"\n")
    for name, value in sorted(header for header in scope["headers"] if header[0].startswith(HEADER_PREFIX.encode())):
        digest.update(name + b": " + value + b"\n")
    digest.update(body)
    return digest.hexdigest()


async def _replay(answer: StoredAnswer, key: str, send: Send) -> None:
    if answer.body is None:
        raise ServiceError(
            f"the request with Idempotency-Key {key!r} was answered, and the answer is not kept: it has more than "
            f"{MAX_ANSWER_BYTES} bytes, or newer ones needed the room; send a new key to run it again",
            409,
            "idempotency_answer_too_large",
            retry=False,
        )
    await send(
        {"type": "http.response.start", "status": answer.status, "headers": [*answer.headers, REPLAYED]},
    )
    await send({"type": "http.response.body", "body": answer.body})


class _Copy:
    """Sends, and keeps what was sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._status, self._size, self._is_whole = 0, 0.0, False
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], list(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            part = message.get("body", b"")
            self._size += len(part)
            if self._size <= MAX_ANSWER_BYTES:
                self._parts.append(part)
            else:
                self._parts, self._size = [], math.inf
            self._is_whole = not message.get("more_body", False)
        await self._send(message)

    @property
    def is_final(self) -> bool:
        """Whether a repetition would get the same. A failure is final where something was paid for."""
        headers = {name.lower(): value for name, value in self._headers}
        status, is_paid = self._status, headers.get(b"x-should-retry") == b"false"
        # The status of a stream is out before its work begins, so that a failure is one of its events.
        if headers.get(b"content-type", b"").startswith(EVENT_STREAM) and (failure := self._streamed_failure()):
            status, is_paid = failure["status"], not failure["should_retry"]
        return self._is_whole and status not in _NOT_STORED and (status < 500 or is_paid)

    def _streamed_failure(self) -> dict[str, Any] | None:
        """The event that ended a stream without an answer (``triage.event_stream.stream_error``)."""
        lines = (line for part in self._parts for line in part.split(b"\n") if _FAILURE.encode() in line)
        events = (json.loads(line.removeprefix(_DATA)) for line in lines if line.startswith(_DATA))
        return next((event for event in events if _FAILURE in event), None)

    def answer(self) -> StoredAnswer:
        # The request's own id is put on again by whoever sends the answer.
        headers = [(name, value) for name, value in self._headers if name.lower() != b"x-request-id"]
        return StoredAnswer(self._status, headers, None if math.isinf(self._size) else b"".join(self._parts))
