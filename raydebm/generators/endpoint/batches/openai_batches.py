"""Candidates from OpenAI's batch API: half the price, within a day.

Rules:

1. what is about to be sent is written down before, the batch's id after it, and that its results were read at last
   (``batch_states``), so that a batch is paid for once, wherever the run is killed;
2. a batch whose id was not written down is found in the provider's list, by the digest of its file;
3. batches that an earlier process has sent are read first, and only what they lack is sent;
4. a batch that failed, expired or was cancelled gives the results it has. Every other request of it is a row with
   ``error``, which ``--retry-failed`` sends in another batch;
5. while an endpoint cannot be reached, or refuses the key, nothing is given up: the next run reads the same batches;
6. under a limit in US dollars so many requests are sent as it covers if every completion runs to its limit.

Does not know: tasks, Ray, who waits for a day.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace

from raydebm.config import OpenAIBatchGenerator
from raydebm.generators.endpoint.batches.batch_api import BatchApi, BatchStatus
from raydebm.generators.endpoint.batches.batch_lines import BatchInput, next_input, read_result
from raydebm.generators.endpoint.batches.batch_states import BatchState, BatchStates
from raydebm.generators.endpoint.failure_texts import failure_text
from raydebm.generators.endpoint.rate_limits import Backoff, Budget
from raydebm.generators.endpoint.transports import CarrierError
from raydebm.generators.replies import Completion, ReplyError
from raydebm.generators.requests import NO_USAGE, TokenUsage, answered, unanswered, usage_cost
from raydebm.identity import seed_for
from raydebm.records import Candidate, FailureKind, GenerationRequest

_LOG = logging.getLogger(__name__)
MOST_FAILED_POLLS = 60
"""So often in a row an endpoint may not answer before the run ends without its batches."""

_TOO_LITTLE = (
    "what is left of the budget (${:.4f}) does not cover a completion at its limit; raise generation.max_usd and "
    "repeat the command with --retry-failed"
)
_Failure = ReplyError | CarrierError


@dataclass(slots=True)
class _OpenBatch:
    """A batch at the provider, and those of its requests that are asked for now."""

    state: BatchState
    requests: dict[str, GenerationRequest]
    """By custom id; those without a result yet."""
    asked: frozenset[str]
    """The custom ids of all of them."""
    num_failed_polls: int = 0


class OpenAIBatchesGenerator:
    """One model behind one batch API. Used from one event loop at a time."""

    def __init__(
        self,
        config: OpenAIBatchGenerator,
        *,
        key: str | None,
        states: BatchStates,
        budget: Budget | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self.name = config.name
        self._config, self._key, self._states = config, key, states
        self._budget, self._backoff = budget or Budget(None), backoff or Backoff()
        self._api = BatchApi(config, key)
        self._jitter = random.Random(seed_for("jitter", config.name))
        self._listed: dict[str, str] | None = None
        """Ids of the provider's batches that were not read yet, by digest; None until they are asked for."""

    async def stream(self, requests: Sequence[GenerationRequest]) -> AsyncIterator[Candidate]:
        """One candidate per request, a batch after the other as they end."""
        waiting = {request.candidate_id: request for request in requests}
        batches, failed = await self._taken_up(waiting)
        for candidate in failed:
            yield candidate
        while waiting or batches:
            for candidate in await self._fill(batches, waiting):
                yield candidate
            num_ended = 0
            for batch in list(batches):
                status = await self._ended(batch)
                if status is None:
                    continue
                num_ended += 1
                batches.remove(batch)
                async for candidate in self._results(batch, status):
                    yield candidate
            if batches and not num_ended:
                await asyncio.sleep(self._config.poll_s)

    async def aclose(self) -> None:
        """Close the connections; batches go on."""
        await self._api.aclose()

    async def _taken_up(self, waiting: dict[str, GenerationRequest]) -> tuple[list[_OpenBatch], list[Candidate]]:
        """Batches of an earlier process, whose requests wait no longer; and rows of those that cannot be looked for."""
        batches: list[_OpenBatch] = []
        failed: list[Candidate] = []
        for state in self._states.unread():
            mine = {custom_id: waiting[custom_id] for custom_id in state.custom_ids if custom_id in waiting}
            if not mine:
                continue
            try:
                batch_id = state.batch_id or await self._listed_id(state.digest)
            except (ReplyError, CarrierError) as error:
                # Sent or not? Only the provider knows, and it is not asked to do it again before it says so.
                failed += self._rows(mine.values(), error)
            else:
                if batch_id is None:
                    self._states.forget(state)
                    continue
                batches.append(_OpenBatch(self._states.note_id(state, batch_id), mine, frozenset(mine)))
            for custom_id in mine:
                del waiting[custom_id]
        return batches, failed

    async def _fill(self, batches: list[_OpenBatch], waiting: dict[str, GenerationRequest]) -> list[Candidate]:
        """Send what waits, as far as there is room and money; rows of what cannot be sent."""
        failed: list[Candidate] = []
        while waiting and len(batches) < self._config.max_open_batches:
            left_usd = self._budget.left_usd - sum(batch.state.worst_usd for batch in batches)
            chosen = next_input(waiting.values(), self._config, left_usd=left_usd)
            is_covered = chosen.worst_usd <= left_usd
            refusal = self._budget.refusal() or (None if is_covered else _TOO_LITTLE.format(left_usd))
            if batches and not is_covered:
                break  # what the open ones leave will be there for the next ones
            if refusal is not None:
                failed += self._rows(waiting.values(), ReplyError(refusal, failure=FailureKind.BUDGET))
                waiting.clear()
                break
            for request in chosen.requests:
                del waiting[request.candidate_id]
            try:
                batches.append(await self._sent(chosen))
            except (ReplyError, CarrierError) as error:
                failed += self._rows(chosen.requests, error)
        return failed

    async def _sent(self, chosen: BatchInput) -> _OpenBatch:
        """Make a batch, or find the one that was made of the same file.

        Raises:
            ReplyError, CarrierError: the provider did not take it, or did not say whether it did.
        """
        ids = tuple(request.candidate_id for request in chosen.requests)
        state = self._states.begin(chosen.digest, ids, worst_usd=chosen.worst_usd)
        attempt, may_exist = 0, False
        while True:
            try:
                batch_id = await self._listed_id(state.digest)
                if batch_id is None:
                    may_exist = False  # by the list
                    file_id = await self._api.upload(f"raydebm-{state.digest}.jsonl", chosen.content)
                    may_exist = True
                    batch_id = await self._api.create(file_id, state.digest)
                _LOG.info("batch %s of %s: %d requests", batch_id, self.name, len(ids))
                named = self._states.note_id(state, batch_id)
                return _OpenBatch(named, dict(zip(ids, chosen.requests, strict=True)), frozenset(ids))
            except (ReplyError, CarrierError) as error:
                is_refused = isinstance(error, ReplyError) and not error.retry
                if is_refused or attempt >= self._config.max_retries:
                    if not may_exist:
                        self._states.forget(state)
                    raise
                self._listed = None  # it may have been made all the same
            await asyncio.sleep(self._backoff.wait_s(attempt, chance=self._jitter.random()))
            attempt += 1

    async def _listed_id(self, digest: str) -> str | None:
        """The provider's batch with this digest, unless its results were read before."""
        if self._listed is None:
            was_read = self._states.read_ids()
            newest_last = [status async for status in self._api.recent() if status.batch_id not in was_read][::-1]
            self._listed = {status.digest: status.batch_id for status in newest_last if status.digest is not None}
        return self._listed.pop(digest, None)

    async def _ended(self, batch: _OpenBatch) -> BatchStatus | _Failure | None:
        """How a batch has ended, or why it cannot be waited for; None while it goes on."""
        try:
            status = await self._api.status(batch.state.batch_id or "")
        except (ReplyError, CarrierError) as error:
            batch.num_failed_polls += 1
            if (isinstance(error, ReplyError) and not error.retry) or batch.num_failed_polls >= MOST_FAILED_POLLS:
                return error
            _LOG.warning("batch %s of %s: %s", batch.state.batch_id, self.name, self._explain(error))
            return None
        batch.num_failed_polls = 0
        return status if status.is_final else None

    async def _results(self, batch: _OpenBatch, status: BatchStatus | _Failure) -> AsyncIterator[Candidate]:
        """A candidate for each request of a batch that has ended."""
        failure: _Failure
        if isinstance(status, BatchStatus):
            failure, is_over = _why_missing(status), True
            for file_id in status.file_ids:
                try:
                    async for candidate in self._read(file_id, batch.requests):
                        yield candidate
                except (ReplyError, CarrierError) as error:
                    failure, is_over = error, is_over and _is_gone(error)
        else:
            failure, is_over = status, _is_gone(status)
        for candidate in self._rows(batch.requests.values(), failure):
            yield candidate
        if is_over:
            self._states.note_read(batch.state, batch.asked)

    async def _read(self, file_id: str, left: dict[str, GenerationRequest]) -> AsyncIterator[Candidate]:
        """Candidates of a result file; takes their requests out of ``left``.

        Raises:
            ReplyError, CarrierError: the file cannot be read to its end.
        """
        attempt = 0
        while True:
            try:
                async for line in self._api.lines(file_id):
                    result = read_result(line)
                    request = None if result is None else left.pop(result[0], None)
                    if result is not None and request is not None:
                        yield self._candidate(request, result[1])
                return
            except CarrierError:
                if attempt >= self._config.max_retries:
                    raise
            await asyncio.sleep(self._backoff.wait_s(attempt, chance=self._jitter.random()))
            attempt += 1

    def _candidate(self, request: GenerationRequest, result: Completion | ReplyError) -> Candidate:
        usage = replace(result.usage, cost_usd=usage_cost(self._config, result.usage))
        if isinstance(result, ReplyError):
            self._budget.add_lost(usage.cost_usd)
            return self._rows([request], result, usage=usage)[0]
        self._budget.add(usage.cost_usd)
        return answered(
            request,
            result.text,
            usage=usage,
            reasoning=result.reasoning,
            finish_reason=result.finish_reason,
            logprobs=result.logprobs,
        )

    def _rows(
        self, requests: Iterable[GenerationRequest], error: _Failure, *, usage: TokenUsage = NO_USAGE
    ) -> list[Candidate]:
        text = self._explain(error)
        failure = error.failure if isinstance(error, ReplyError) else None
        return [unanswered(request, text, failure=failure, usage=usage) for request in requests]

    def _explain(self, error: _Failure) -> str:
        return failure_text(error, self._config, key=self._key)


def _is_gone(error: _Failure) -> bool:
    """Whether the provider has the batch or file no longer."""
    return isinstance(error, ReplyError) and error.status == 404


def _why_missing(status: BatchStatus) -> ReplyError:
    """What is said of a request without a result."""
    batch = f"batch {status.batch_id}"
    if status.status == "completed":
        return ReplyError(f"{batch} has no result for this request; --retry-failed sends it again")
    errors = f": {status.errors}" if status.errors else ""
    remedy = "; where too many tokens were enqueued, lower max_requests_per_batch" if status.status == "failed" else ""
    return ReplyError(f"{batch} {_ENDS[status.status]}{errors}{remedy}; --retry-failed sends this request again")


_ENDS = {
    "failed": "was refused as a whole",
    "expired": "was not finished within 24 hours",
    "cancelled": "was cancelled",
}
