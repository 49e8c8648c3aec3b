"""The calls of OpenAI's batch API, by the official client: files in, batches, files out.

Failures are a ``ReplyError`` (the provider answered) or a ``CarrierError`` (it did not). Calls that change nothing are
repeated by the client; the one that makes a batch is not, because the second one would be paid for too.

Does not know: requests, candidates, where states are kept.
"""

import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raydebm.config import OpenAIBatchGenerator
from raydebm.generators.endpoint.batches.batch_lines import CHAT_PATH
from raydebm.generators.endpoint.transports import CarrierError
from raydebm.generators.replies import ReplyError, check_length, status_error

if TYPE_CHECKING:
    from openai.types import Batch

DIGEST = "raydebm_digest"
"""Key of a batch's metadata."""
LISTED_S = 3 * 86_400.0
"""Batches that were made longer ago are not looked for; the window of one is a day."""
_FINAL = frozenset({"completed", "failed", "expired", "cancelled"})
_PAGE = 100
_SHOWN_ERRORS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatus:
    """What the provider says of a batch."""

    batch_id: str
    status: str
    digest: str | None
    """None where it is none of ours."""
    file_ids: tuple[str, ...]
    """Output and error file, as far as there are any."""
    errors: str = ""
    """Why it failed as a whole."""

    @property
    def is_final(self) -> bool:
        """Whether nothing more will come."""
        return self.status in _FINAL

    @property
    def is_useful(self) -> bool:
        """Whether it has given or will give results."""
        return bool(self.file_ids) or self.status in {"validating", "in_progress", "finalizing"}


class BatchApi:
    """One endpoint. The connections belong to the event loop of the first call."""

    def __init__(self, config: OpenAIBatchGenerator, key: str | None) -> None:
        import openai  # 0.5 s of imports that only this path needs

        from raydebm.generators.endpoint.official_client import official_client

        self._errors = (openai.APIConnectionError, openai.APIStatusError)
        self._status_error = openai.APIStatusError
        self._client = official_client(
            config.base_url,
            api_key=key,
            headers=config.headers,
            timeout_s=config.timeout_s,
            max_retries=config.max_retries,
            over_aiohttp=False,
        )

    async def upload(self, name: str, content: bytes) -> str:
        """Send an input file; returns its id."""
        with self._translated():
            return (await self._client.files.create(file=(name, content), purpose="batch")).id

    async def create(self, file_id: str, digest: str) -> str:
        """Make a batch of an uploaded file, without a second attempt; returns its id."""
        with self._translated():
            once = self._client.with_options(max_retries=0)
            batch = await once.batches.create(
                input_file_id=file_id,
                endpoint=CHAT_PATH,
                completion_window="24h",
                metadata={DIGEST: digest},
            )
        return batch.id

    async def status(self, batch_id: str) -> BatchStatus:
        """How far a batch is."""
        with self._translated():
            return _status_of(await self._client.batches.retrieve(batch_id))

    async def recent(self) -> AsyncIterator[BatchStatus]:
        """Batches of the last days that may give results, the newest first; none where an endpoint has no list."""
        since = time.time() - LISTED_S
        try:
            with self._translated():
                async for batch in self._client.batches.list(limit=_PAGE):
                    if (batch.created_at or since) < since:
                        return
                    status = _status_of(batch)
                    if status.digest is not None and status.is_useful:
                        yield status
        except ReplyError as error:
            if error.status not in (404, 405, 501):
                raise

    async def lines(self, file_id: str) -> AsyncIterator[bytes]:
        """The lines of a file as they come, without empty ones. Only line feeds end a line: texts may hold any other
        separator. A file may be of any length, and none of its lines is longer than a reply."""
        line = bytearray()
        with self._translated():
            async with self._client.files.with_streaming_response.content(file_id) as response:
                async for chunk in response.iter_bytes():
                    *ends, begin = chunk.split(b"\n")
                    for end in ends:
                        line += end
                        if line.strip():
                            yield bytes(line)
                        line.clear()
                    line += begin
                    check_length(len(line))
        if line.strip():
            yield bytes(line)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._status_error as error:
            content: Any = error.response.content if error.response.is_stream_consumed else str(error).encode()
            raise status_error(error.status_code, content) from error
        except self._errors as error:
            raise CarrierError(f"connection failed: {error} ({error.__cause__!r})") from error
        except Exception as error:
            # A connection that breaks while a file is read raises what the library below the client has.
            if not type(error).__module__.startswith("httpx"):
                raise
            raise CarrierError(f"connection failed: {error!r}") from error


def _status_of(batch: "Batch") -> BatchStatus:
    messages = [error.message or error.code or "" for error in (batch.errors.data or [])] if batch.errors else []
    return BatchStatus(
        batch_id=batch.id,
        status=batch.status,
        digest=(batch.metadata or {}).get(DIGEST),
        file_ids=tuple(file_id for file_id in (batch.output_file_id, batch.error_file_id) if file_id),
        errors="; ".join(messages[:_SHOWN_ERRORS]),
    )
