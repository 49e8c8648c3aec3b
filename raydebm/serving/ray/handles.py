"""The service's backend on Ray Serve: deployment handles, and what to do when a replica dies.

Serve sends new calls elsewhere when a replica dies, but loses the calls that the dead one held. Every call here can be
made again: generation is content-addressed, scoring and checking are pure.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from raydebm import tracing
from raydebm.errors import RaydebmError, ServiceError
from raydebm.records import Candidate, ConstraintReport, Energies, GenerationRequest, Problem
from raydebm.run.ensemble_file import CheckpointRef
from raydebm.scorer.texts import TextToScore
from raydebm.serving.settings.bundle import Bundle, RunSource

log = logging.getLogger(__name__)

T = TypeVar("T")
Handle: TypeAlias = "DeploymentHandle[Any]"
NUM_TRIES = 6
FIRST_PAUSE_S = 0.05
"""Pauses double: 0.05 to 0.8 s, 1.6 s in all. Waiting for a replacement is not part of it: Serve queues the call."""
STATUS_TIMEOUT_S = 5.0
BUSY_S = 30.0
"""A part that gave results within this time and does not tell its state is busy, not gone: the question waits behind
its work. Under load, results come every second."""
LOAD_TIMEOUT_S = 120.0


async def persistently(
    call: Callable[[], Awaitable[T]], *, what: str, patiently: bool = False, tries: int = NUM_TRIES
) -> T:
    """Make a call again when the replica that held it died.

    Args:
        call: makes it.
        what: for messages.
        patiently: also when too many calls wait, for what the call is about was paid for.
        tries: how often it is made at most.

    Raises:
        ServiceError: 503 when replicas keep dying, or too many calls wait.
        RaydebmError: what the replica itself raised.
    """
    for attempt in range(tries):
        try:
            return await call()
        except RayActorError:
            log.warning("a %s replica died in call %d of at most %d", what, attempt + 1, tries)
            await asyncio.sleep(FIRST_PAUSE_S * 2**attempt)
        except BackPressureError as error:
            if patiently and attempt + 1 < tries:
                await asyncio.sleep(FIRST_PAUSE_S * 2**attempt)
                continue
            raise ServiceError(f"too many requests wait for the {what}; try again", 503, "overloaded") from error
        except DeploymentUnavailableError as error:
            raise ServiceError(f"the {what} is not available: {error}", 503, "unavailable") from error
        except RayTaskError as error:
            # The message of the wrapped error is a remote traceback; the cause is what was meant for people.
            if isinstance(error.cause, RaydebmError):
                raise error.cause from None
            raise
    message = f"{what} replicas died {tries} times in a row; see their logs"
    raise ServiceError(message, 503, "unavailable", retry=tries > 1)


@dataclass(slots=True)
class _Signs:
    """When the parts were last seen alive, and what they then said of themselves."""

    worked: dict[str, float] = field(default_factory=dict)
    """Part -> ``time.monotonic()``."""
    said: dict[str, Any] = field(default_factory=dict)

    def note(self, part: str) -> None:
        self.worked[part] = time.monotonic()

    def of_busy(self, part: str) -> Any | None:
        """What a part said last, if it worked lately; else None."""
        age_s = time.monotonic() - self.worked.get(part, -math.inf)
        return self.said.get(part) if age_s < BUSY_S else None


class HandleBackend:
    """``core.backend.Backend`` over deployment handles."""

    def __init__(
        self,
        generator: Handle,
        scorer: Handle,
        constraint: Handle,
        baselines: "DeploymentHandle[Any] | None" = None,
        run: Bundle | None = None,
    ) -> None:
        """
        Args:
            generator: of the candidates.
            scorer: of the ensemble.
            constraint: of the checks.
            baselines: of the baselines that are evidence; None: there are none.
            run: whose generators, checks and adapters are meant, whatever else a replica has loaded; None: what it
                began with, and tasks that are known by their names.
        """
        self._generator, self._scorer, self._constraint = generator, scorer, constraint
        self._baselines, self._run = baselines, run
        self._signs = _Signs()

    def serving(self, bundle: Bundle) -> "HandleBackend":
        """See ``Backend``."""
        other = HandleBackend(self._generator, self._scorer, self._constraint, self._baselines, bundle)
        other._signs = self._signs
        return other

    async def load(self, bundle: Bundle) -> None:
        """Have a run's adapters and generators ready on every replica that runs now.

        Raises:
            RaydebmError: they cannot be used.
            ServiceError: no replica answers.
            TimeoutError: a replica takes longer than ``LOAD_TIMEOUT_S``.
        """
        await self._load(self._scorer, "scorer", bundle.checkpoint_ref)
        if bundle.source is not None:
            await self._load(self._generator, "generator", bundle.source)

    async def _load(self, handle: Handle, part: str, what: CheckpointRef | RunSource) -> None:
        await persistently(lambda: self._call(handle.load, what), what=part)
        # The others would load it at the first request that needs it, which would then wait.
        everywhere = handle.broadcast("load", what)
        for answer in await everywhere.results_async(timeout_s=LOAD_TIMEOUT_S, return_exceptions=True):
            # A replica that died meanwhile is none of our business; its successor loads what it is asked for.
            if isinstance(answer, RayTaskError) and isinstance(answer.cause, RaydebmError):
                raise answer.cause

    async def generate(
        self, requests: Sequence[GenerationRequest], on_candidate: Callable[[Candidate], None], *, may_repeat: bool
    ) -> list[Candidate]:
        """Candidates as they come; after a death only the missing ones are asked for again."""
        by_id: dict[str, Candidate] = {}
        source = None if self._run is None else self._run.source

        async def draw() -> None:
            missing = [request for request in requests if request.candidate_id not in by_id]
            stream = self._generator.options(stream=True).stream
            arrivals: Any = stream.remote(missing, tracing.outgoing(), may_repeat, source)
            with _cancelled_with_us(arrivals):
                async for batch in arrivals:
                    self._signs.note("generator")
                    for candidate in batch:
                        by_id[candidate.candidate_id] = candidate
                        on_candidate(candidate)

        # What a dead replica had sent may be billed; where money is limited, nothing is sent twice.
        await persistently(draw, what="generator", tries=NUM_TRIES if may_repeat else 1)
        return [by_id[request.candidate_id] for request in requests]

    async def check(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]:
        """See ``Backend``."""
        call = self._constraint.check
        task = None if self._run is None else self._run.of(problem.task).recipe.task
        return await persistently(
            lambda: self._call(call, problem, list(candidates), tracing.outgoing(), task),
            what="constraint checker",
            patiently=True,
        )

    async def score(self, texts: Sequence[TextToScore]) -> list[Energies | None]:
        """See ``Backend``."""
        call, checkpoint = self._scorer.score, None if self._run is None else self._run.checkpoint_ref
        energies: list[Energies | None] = await persistently(
            lambda: self._call(call, list(texts), checkpoint, tracing.outgoing()),
            what="scorer",
            patiently=True,
        )
        self._signs.note("scorer")
        return energies

    async def baseline_scores(self, texts: Sequence[TextToScore]) -> list[Mapping[str, float]]:
        """See ``Backend``."""
        if self._baselines is None:
            return [{} for _ in texts]
        call = self._baselines.score
        return await persistently(
            lambda: self._call(call, list(texts), tracing.outgoing()), what="baselines", patiently=True
        )

    async def status(self) -> dict[str, Any]:
        """See ``Backend``."""
        generators, scorer = await asyncio.gather(
            self._state("generator", self._generator), self._state("scorer", self._scorer)
        )
        return {"generators": generators, "scorer": scorer}

    async def _state(self, part: str, handle: Handle) -> Any:
        """What the part says of itself, or said when it last had time to.

        Raises:
            ServiceError: it says nothing, and has done no work lately.
        """
        try:
            async with asyncio.timeout(STATUS_TIMEOUT_S):
                state = await persistently(lambda: self._call(handle.info), what=part)
        except (TimeoutError, ServiceError) as error:
            waits = isinstance(error, TimeoutError) or error.code == "overloaded"
            if waits and (state := self._signs.of_busy(part)) is not None:
                return state
            if isinstance(error, ServiceError):
                raise
            message = f"the {part} did not answer within {STATUS_TIMEOUT_S:g} s; it may still be loading"
            raise ServiceError(message, 503, "not_ready") from error
        self._signs.said[part] = state
        return state

    @staticmethod
    async def _call(method: Any, *args: Any) -> Any:
        response = method.remote(*args)
        with _cancelled_with_us(response):
            return await response


@contextmanager
def _cancelled_with_us(response: Any) -> Iterator[None]:
    """Serve cancels what a request waits for only when it ends the request itself; a timeout or a gone client that we
    notice would leave the replica at work."""
    try:
        yield
    except asyncio.CancelledError:
        response.cancel()
        raise
