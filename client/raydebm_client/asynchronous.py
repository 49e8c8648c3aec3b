"""The client for asyncio."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar, Unpack

import httpx

from raydebm_client import calls
from raydebm_client.calls import Call, Overrides, Problem, RewardSettings, Settings
from raydebm_client.errors import ServiceError
from raydebm_client.results import OutcomeResult, Progress, RerankResult, ScoreResult, TriageResult

T = TypeVar("T")


class AsyncRaydebm:
    """As ``Raydebm``, for asyncio: many requests may run at once. Close it, or use it in ``async with``.

    Every method raises ServiceError when the service refuses or cannot answer; ``status``, ``code`` and ``param`` are
    the service's. Answers 429, 502, 503 and 504, 409 while the first try still runs, and connections that fail, are
    tried again as ``Retry-After`` says; all tries have one ``Idempotency-Key``, so that no answer is paid for twice.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 300.0,
        max_retries: int = 2,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """
        Args:
            base_url: None: RAYDEBM_BASE_URL, else http://127.0.0.1:8000. A ``/v1`` at its end does no harm.
            api_key: None: RAYDEBM_API_KEY, else none is sent.
            timeout_s: longest silence of the service.
            max_retries: further tries of one request.
            transport: another httpx transport, such as one for tests.

        Raises:
            ValueError: a value that cannot be used.
        """
        self._settings = Settings.of(base_url, api_key, timeout_s, max_retries)
        self._http = httpx.AsyncClient(
            base_url=self._settings.base_url,
            headers=dict(self._settings.headers),
            timeout=timeout_s,
            transport=transport,
        )

    async def __aenter__(self) -> "AsyncRaydebm":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def triage(
        self,
        problem: Problem | None = None,
        *,
        messages: Sequence[Mapping[str, Any]] | None = None,
        task: str | None = None,
        **overrides: Unpack[Overrides],
    ) -> TriageResult:
        """Sample candidates, check and score them, and accept, try again or abstain.

        Args:
            problem: a text, or an object with ``prompt`` and the task's own ``data``.
            messages: a chat instead; its last user message is the problem.
            task: name of a served task. Default: the only one.
            overrides: what is different for this request.
        """
        return await self._do(calls.triage_call(calls.triage_body(problem, messages, task, overrides)))

    async def score(
        self, problem: Problem, candidates: Sequence[str], *, task: str | None = None, lambda_: float | None = None
    ) -> ScoreResult:
        """Energies and violations of your own candidates, in their order."""
        return await self._do(calls.score_call(problem, candidates, task, lambda_))

    async def rerank(
        self,
        query: str,
        documents: Sequence[str | Mapping[str, Any]],
        *,
        top_n: int | None = None,
        return_documents: bool = False,
        task: str | None = None,
    ) -> RerankResult:
        """Documents by relevance to the query, best first."""
        return await self._do(calls.rerank_call(query, documents, top_n, return_documents, task))

    async def rewards(
        self,
        prompts: Sequence[str],
        responses: Sequence[str],
        **settings: Unpack[RewardSettings],
    ) -> list[float]:
        """A reward for each response to the prompt at its place: value - sigma_weight * sigma, at least floor.

        Args:
            prompts: one for each response; responses to the same prompt are judged together.
            responses: what was written.
            settings: ``reward="energy"`` (the default): the value is -energy. ``reward="log_odds"``: it is
                log(p / (1 - p)), p being the probability that the response is right.
        """
        calls.check_paired(prompts, responses)
        by_place: dict[int, float] = {}
        for places in calls.reward_groups(prompts):
            rewards: dict[int, float] = await self._do(calls.rewards_call(prompts, responses, places, settings))
            by_place |= rewards
        return [by_place[place] for place in range(len(prompts))]

    async def report_outcome(
        self, record_id: str, *, correct: bool, by: str, answer: str | None = None, note: str | None = None
    ) -> OutcomeResult:
        """Report that the selected candidate of a decision was right or wrong. It is stored when this returns.

        Args:
            record_id: of an answer (``TriageResult.record_id``), or of the list of decisions.
            correct: whether it was right; of an abstention, the answer that was held back.
            by: who says so. A later report by the same name takes the place of the earlier one.
            answer: the correct answer, written as the task reads answers.
            note: for readers of the history.
        """
        return await self._do(calls.outcome_call(record_id, correct, by, answer, note))

    async def stream(
        self,
        problem: str | None = None,
        *,
        messages: Sequence[Mapping[str, Any]] | None = None,
        task: str | None = None,
        **overrides: Unpack[Overrides],
    ) -> AsyncIterator[Progress | TriageResult]:
        """Progress while candidates arrive; the last item is the result. Leaving the loop cancels the work upstream."""
        reader = calls.StreamReader()
        body = calls.stream_body(problem, messages, task, overrides)
        response = await self._send("POST", "/v1/triage", stream=True, json=body)
        try:
            async for line in response.aiter_lines():
                progress = reader.feed(line)
                if progress is not None:
                    yield progress
        except httpx.TransportError as error:
            raise ServiceError(f"the stream broke off: {error!r}", 502, "stream_cut") from error
        except httpx.DecodingError as error:
            raise calls.unexpected("the stream", error) from error
        finally:
            await response.aclose()
        yield reader.result()

    async def models(self) -> list[str]:
        """Ids for the ``model`` field of chat requests."""
        return await self._do(calls.models_call())

    async def health(self) -> dict[str, Any]:
        """What is loaded. Raises ServiceError 503 while something is not."""
        return await self._do(calls.health_call())

    async def _do(self, call: Call[T]) -> T:
        method = "GET" if call.body is None else "POST"
        response = await self._send(method, call.path, **calls.content(call))
        return calls.answer_of(call, response.content)

    async def _send(self, method: str, path: str, *, stream: bool = False, **content: Any) -> httpx.Response:
        """A successful response; a streamed one is open and its body unread."""
        attempt = 0
        while True:
            attempt += 1
            retry_after, failure = None, None
            try:
                response = await self._http.send(self._http.build_request(method, path, **content), stream=stream)
                if response.is_success:
                    return response
                await response.aread()
                await response.aclose()
                failure = calls.error_of(response.status_code, response.content, response.headers)
                if not calls.may_retry(failure, response.headers):
                    raise failure
                retry_after = response.headers.get("retry-after")
            except calls.LOST as error:
                failure = calls.lost(error, self._settings)
                if isinstance(error, calls.FINAL):
                    raise failure from error
            pause = calls.pause_before_retry(attempt, max_retries=self._settings.max_retries, retry_after=retry_after)
            if pause is None:
                raise failure
            await asyncio.sleep(pause)
