"""The service's backend on Ray Serve: deployment handles, and retries after the death of a replica.

When a replica dies, Serve routes new calls elsewhere but loses the running ones. Every call here can be repeated:
generation is content-addressed, scoring and checking are pure.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, TypeAlias, TypeVar

from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from raydebm import tracing
from raydebm.errors import RaydebmError, ServiceError
from raydebm.records import Candidate, ConstraintReport, Energies, GenerationRequest, Problem
from raydebm.run.ensemble_file import CheckpointRef
from raydebm.scorer.texts import TextToScore
from raydebm.service.settings import Bundle, RunSource

log = logging.getLogger(__name__)

T = TypeVar("T")
Handle: TypeAlias = "DeploymentHandle[Any]"
NUM_TRIES = 6
FIRST_PAUSE_S = 0.05
"""First pause between two tries; each further one is twice as long. While a dead replica is replaced, Serve queues the
call."""
STATUS_TIMEOUT_S = 5.0
BUSY_S = 30.0
"""A part that returned results within this time and does not answer a status call is busy, not dead: the call queues
behind its work. Under load, results arrive every second."""
LOAD_TIMEOUT_S = 120.0


async def with_retries(
    call: Callable[[], Awaitable[T]], *, what: str, patiently: bool = False, tries: int = NUM_TRIES
) -> T:
    """Repeat a call whose replica died. With ``patiently``, for candidates that were paid for, also repeat it when too
    many calls wait. Raises ServiceError 503 when replicas keep dying or too many calls wait, or the replica's own
    RaydebmError."""
    for attempt in range(tries):
        try:
            return await call()
        except RayActorError:
            log.warning("a %s replica died in call %d of at most %d", what, attempt + 1, tries)
        except BackPressureError as error:
            if not patiently or attempt + 1 == tries:
                message = f"too many requests wait for the {what}; try again"
                raise ServiceError(message, 503, "overloaded") from error
        except DeploymentUnavailableError as error:
            raise ServiceError(f"the {what} is not available: {error}", 503, "unavailable") from error
        except RayTaskError as error:
            # The wrapped error's message is a remote traceback; its cause is readable.
            if isinstance(error.cause, RaydebmError):
                raise error.cause from None
            raise
        if attempt + 1 < tries:
            await asyncio.sleep(FIRST_PAUSE_S * 2**attempt)
    message = f"{what} replicas died {tries} times in a row; see their logs"
    raise ServiceError(message, 503, "unavailable", retry=tries > 1)


class HandleBackend:
    """``core.Backend`` over deployment handles."""

    def __init__(
        self,
        generator: Handle,
        scorer: Handle,
        constraint: Handle,
        baselines: "DeploymentHandle[Any] | None" = None,
        run: Bundle | None = None,
    ) -> None:
        """``run`` has the generators, checks and adapters. Default: those of the replicas' start; tasks by name."""
        self._generator, self._scorer, self._constraint = generator, scorer, constraint
        self._baselines, self._run = baselines, run
        self._worked_at: dict[str, float] = {}
        """Time of each part's last results (``time.monotonic()``), for all runs together."""
        self._said: dict[str, Any] = {}
        """Last status of each part."""

    def serving(self, bundle: Bundle) -> "HandleBackend":
        other = copy(self)
        other._run = bundle
        return other

    async def load(self, bundle: Bundle) -> None:
        """Load a run's adapters and generators on every running replica. Raises RaydebmError if they cannot be used or
        no replica answers, TimeoutError if one takes longer than ``LOAD_TIMEOUT_S``."""
        await self._load(self._scorer, "scorer", bundle.checkpoint_ref)
        await self._load(self._generator, "generator", bundle.source)

    async def _load(self, handle: Handle, part: str, what: CheckpointRef | RunSource) -> None:
        await with_retries(lambda: self._call(handle.load, what), what=part)
        # The other replicas would otherwise load it during the first request that needs it.
        everywhere = handle.broadcast("load", what)
        for answer in await everywhere.results_async(timeout_s=LOAD_TIMEOUT_S, return_exceptions=True):
            # The successor of a replica that died meanwhile loads on demand.
            if isinstance(answer, RayTaskError) and isinstance(answer.cause, RaydebmError):
                raise answer.cause

    async def generate(
        self, requests: Sequence[GenerationRequest], on_candidate: Callable[[Candidate], None], *, may_repeat: bool
    ) -> list[Candidate]:
        """Candidates as they arrive; after a replica's death only missing ones are requested again."""
        by_id: dict[str, Candidate] = {}
        source = None if self._run is None else self._run.source

        async def draw() -> None:
            missing = [request for request in requests if request.candidate_id not in by_id]
            stream = self._generator.options(stream=True).stream
            arrivals: Any = stream.remote(missing, tracing.outgoing(), may_repeat, source)
            with _cancelled_with_us(arrivals):
                async for batch in arrivals:
                    self._worked_at["generator"] = time.monotonic()
                    for candidate in batch:
                        by_id[candidate.candidate_id] = candidate
                        on_candidate(candidate)

        # Candidates sent by the dead replica may be billed; with a limit on money, nothing is sent twice.
        await with_retries(draw, what="generator", tries=NUM_TRIES if may_repeat else 1)
        return [by_id[request.candidate_id] for request in requests]

    async def check(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]:
        call = self._constraint.check
        task = None if self._run is None else self._run.of(problem.task).recipe.task
        return await with_retries(
            lambda: self._call(call, problem, list(candidates), tracing.outgoing(), task),
            what="constraint checker",
            patiently=True,
        )

    async def score(self, texts: Sequence[TextToScore]) -> list[Energies | None]:
        call, checkpoint = self._scorer.score, None if self._run is None else self._run.checkpoint_ref
        energies: list[Energies | None] = await with_retries(
            lambda: self._call(call, list(texts), checkpoint, tracing.outgoing()), what="scorer", patiently=True
        )
        self._worked_at["scorer"] = time.monotonic()
        return energies

    async def baseline_scores(self, texts: Sequence[TextToScore]) -> list[Mapping[str, float]]:
        if self._baselines is None:
            return [{} for _ in texts]
        call = self._baselines.score
        return await with_retries(
            lambda: self._call(call, list(texts), tracing.outgoing()), what="baselines", patiently=True
        )

    async def status(self) -> dict[str, Any]:
        generators, scorer = await asyncio.gather(
            self._state("generator", self._generator), self._state("scorer", self._scorer)
        )
        return {"generators": generators, "scorer": scorer}

    async def _state(self, part: str, handle: Handle) -> Any:
        """Status of the part: current, or the last one known of a busy part. Raises ServiceError if it does not answer
        and has done no work lately."""
        try:
            async with asyncio.timeout(STATUS_TIMEOUT_S):
                state = await with_retries(lambda: self._call(handle.info), what=part)
        except (TimeoutError, ServiceError) as error:
            waits = isinstance(error, TimeoutError) or error.code == "overloaded"
            is_busy = time.monotonic() - self._worked_at.get(part, -math.inf) < BUSY_S
            if waits and is_busy and part in self._said:
                return self._said[part]
            if isinstance(error, ServiceError):
                raise
            message = f"the {part} did not answer within {STATUS_TIMEOUT_S:g} s; it may still be loading"
            raise ServiceError(message, 503, "not_ready") from error
        self._said[part] = state
        return state

    @staticmethod
    async def _call(method: Any, *args: Any) -> Any:
        response = method.remote(*args)
        with _cancelled_with_us(response):
            return await response


@contextmanager
def _cancelled_with_us(response: Any) -> Iterator[None]:
    """Cancel the call when this block is cancelled. Serve does so only for requests that it ends itself; after our own
    timeout or disconnect the replica would go on."""
    try:
        yield
    except asyncio.CancelledError:
        response.cancel()
        raise
