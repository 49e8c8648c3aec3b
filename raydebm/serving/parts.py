"""What the triage loop runs on in the service: its three protocols on top of one backend, and the watch over a request.

Does not know: Ray, HTTP. The backend is three remote parts in production and plain objects in tests.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from raydebm import tracing
from raydebm.decision.sampling.deadline import Deadline, is_late, now_s
from raydebm.decision.sampling.one_pass import Arrived
from raydebm.decision.sampling.waves import PassWaves
from raydebm.errors import LimitReachedError, RaydebmError, ResourceError, ScoringError, ServiceError
from raydebm.generators.requests import unanswered
from raydebm.records import (
    Candidate,
    ConstraintReport,
    Energies,
    GenerationRequest,
    Message,
    Problem,
    Reasoning,
    ScoredCandidate,
)
from raydebm.serving.asking import Ask
from raydebm.serving.ceilings import CeilingBody
from raydebm.serving.ledger import Hold
from raydebm.serving.logs import redact
from raydebm.serving.spending import Affordable, affordable, reserved, spent_amount, spent_usd, worst_of

log = logging.getLogger(__name__)

Progress = Callable[[dict[str, Any]], None]
NO_ENERGY = "the ensemble gave no finite energy"


@dataclass(frozen=True, slots=True)
class TextToScore:
    """One (problem, candidate) text pair for the ensemble."""

    candidate_id: str
    prompt: str
    text: str


class Backend(Protocol):
    """The parts behind the service. Each call takes one list, because a call to another replica costs
    milliseconds."""

    async def generate(
        self, requests: Sequence[GenerationRequest], on_candidate: Arrived, *, hedge: bool
    ) -> list[Candidate]:
        """One candidate per request, in their order; failed ones carry ``error``.

        Args:
            requests: what to draw.
            on_candidate: called as each candidate arrives.
            hedge: whether a slow request may be sent a second time, where the service does so.
        """
        ...

    async def check(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]: ...

    async def score(self, texts: Sequence[TextToScore]) -> list[Energies | None]:
        """One per text, in their order; None for one that could not be scored."""
        ...

    async def baseline_scores(self, texts: Sequence[TextToScore]) -> list[Mapping[str, float]]:
        """Scores by name per text, in their order, of the baselines that are evidence."""
        ...

    async def status(self) -> dict[str, Any]:
        """What is loaded.

        Raises:
            ServiceError: a part is not there (yet).
        """
        ...


@dataclass(slots=True)
class Watch:
    """What one request did, for its answer and for whoever watches it."""

    on_progress: Progress | None
    asked: list[GenerationRequest] = field(default_factory=list)
    cancelled: list[GenerationRequest] = field(default_factory=list)
    """Of those asked: cancelled in flight, because the others settled the pass. They may have cost something."""
    over_budget: list[GenerationRequest] = field(default_factory=list)
    """Not asked, because ``max_usd`` might not have covered them."""
    drawn: list[Candidate] = field(default_factory=list)
    """In the order of their arrival, those of a pass that was lost included."""
    judged: list[ScoredCandidate] = field(default_factory=list)
    """Written, checked and scored."""
    stages_ms: dict[str, float] = field(default_factory=dict)
    ceilings: list[CeilingBody] = field(default_factory=list)
    """What was left of the day's ceilings after the last pass."""

    def tell(self, event: str, **facts: Any) -> None:
        if self.on_progress is not None:
            self.on_progress({"event": event, **facts})

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            with tracing.span(stage):
                yield
        finally:
            elapsed = 1000 * (time.perf_counter() - started)
            self.stages_ms[stage] = round(self.stages_ms.get(stage, 0.0) + elapsed, 3)


@dataclass(frozen=True, slots=True)
class Source:
    """Candidates from the backend (triage.drawing.CandidateSource), within the limits of the request."""

    ask: Ask
    backend: Backend
    watch: Watch
    deadline: Deadline | None = None

    async def generate(
        self,
        problem: Problem,
        *,
        pass_index: int,
        messages: tuple[Message, ...] | None,
        arrived: Arrived,
        waves: PassWaves | None = None,
    ) -> list[Candidate]:
        if pass_index > 1:
            self._check_parts()
        plan, hold = await self._reserved(self._plan(pass_index, messages))
        self.watch.over_budget.extend(plan.over_budget)
        self._tell_plan(pass_index, messages, plan)
        found: dict[str, Candidate] = {}
        asked: list[GenerationRequest] = []

        def take(candidate: Candidate) -> None:
            if candidate.candidate_id not in found:
                fitting = self._fitting(candidate)
                found[candidate.candidate_id] = fitting
                self.watch.drawn.append(fitting)  # now, because it was paid for whatever becomes of the pass
                self._tell_candidate(fitting, done=len(found), total=len(plan.asked))
                arrived(fitting)

        async def draw(requests: Sequence[GenerationRequest]) -> None:
            if asked:
                self._check_parts()
            asked.extend(requests)
            self.watch.asked.extend(requests)
            with self.watch.timed("generate"):
                await self._draw(requests, take)

        try:
            await (draw(plan.asked) if waves is None else waves.run(plan.asked, draw))
        except (RaydebmError, OSError) as error:
            if not found:
                raise
            # What has arrived was paid for, and can be decided about.
            missing = [request for request in asked if request.candidate_id not in found]
            for request in missing:
                take(unanswered(request, str(error)))
        finally:
            if waves is not None:
                self.watch.cancelled.extend(request for request in asked if request.candidate_id in waves.cancelled)
            await self._settled(hold, asked)
        return [found[request.candidate_id] for request in plan.asked if request.candidate_id in found]

    def _check_parts(self) -> None:
        """Raises LimitReachedError where the next candidates would fare no better, and cost as much."""
        if (fault := fault_of(self.watch.judged)) is not None:
            raise LimitReachedError(str(fault))

    async def _reserved(self, plan: Affordable) -> tuple[Affordable, Hold | None]:
        """The part of a pass that the day's ceilings allow. Raises CeilingReachedError when that is nothing."""
        account = self.ask.account
        if account is None:
            return plan, None
        return await reserved(plan, account, worst_of(self.ask.bundle.generator_configs()))

    async def _settled(self, hold: Hold | None, asked: Sequence[GenerationRequest]) -> None:
        account = self.ask.account
        if hold is None or account is None:
            return
        worst = worst_of(self.ask.bundle.generator_configs())
        try:
            await account.settle(hold, spent_amount(asked, self.watch.drawn, account, worst))
            self.watch.ceilings = await account.status()
        except ResourceError as error:  # the candidates were paid for; what was held goes on counting as spent
            log.error("spending was not settled", extra={"facts": {"reason": str(error)}})

    @property
    def _may_repeat(self) -> bool:
        """Whether a request may be sent twice, which may cost twice as much."""
        account = self.ask.account
        return self.ask.policy.max_usd is None and not (account is not None and account.limits_money)

    async def _draw(self, requests: Sequence[GenerationRequest], take: Arrived) -> None:
        """All candidates, or those that come in time and a late one for each of the others."""
        hedge = self._may_repeat
        if self.deadline is None:
            for candidate in await self.backend.generate(requests, take, hedge=hedge):
                take(candidate)
            return
        if now_s() < self.deadline.draw_until_s:
            try:
                async with asyncio.timeout_at(self.deadline.draw_until_s) as time_is_up:
                    for candidate in await self.backend.generate(requests, take, hedge=hedge):
                        take(candidate)
            except TimeoutError:
                if not time_is_up.expired():
                    raise
        for request in requests:
            take(unanswered(request, self.deadline.not_drawn()))  # changes nothing where one has arrived

    def _plan(self, pass_index: int, messages: tuple[Message, ...] | None) -> Affordable:
        """Raises LimitReachedError when the money that is left pays for no candidate of the pass."""
        requests, policy = self.ask.requests(pass_index, messages), self.ask.policy
        num_drawn = len(self.watch.asked) - len(self.watch.cancelled)
        most = None if policy.budget is None else policy.budget - num_drawn
        if policy.max_usd is None:
            return affordable(requests, most=most)
        worst = worst_of(self.ask.bundle.generator_configs())
        left_usd = policy.max_usd - spent_usd(self.watch.asked, self.watch.drawn, worst)
        plan = affordable(requests, most=most, left_usd=left_usd, worst=worst)
        if not plan.asked:
            self.watch.over_budget.extend(plan.over_budget)
            raise LimitReachedError(
                f"of max_usd {policy.max_usd:g} at least {max(0.0, left_usd):.3g} US dollars are left, and the "
                f"cheapest candidate may cost {plan.cheapest_usd:.3g}"
            )
        return plan

    def _fitting(self, candidate: Candidate) -> Candidate:
        """A text beyond the limit counts as failed: it would cost memory in every part that follows."""
        limit, size = self.ask.bundle.max_candidate_chars, len(candidate.text or "")
        if size <= limit:
            return candidate
        return replace(candidate, text=None, error=f"the text has {size} characters; at most {limit} are taken")

    def _tell_plan(self, pass_index: int, messages: tuple[Message, ...] | None, plan: Affordable) -> None:
        self.watch.tell(
            "pass",
            **{"pass": pass_index, "requested": len(plan.asked)},
            feedback=None if messages is None else messages[-1]["content"],
            generators=_by_generator(plan.asked),
            over_budget=_by_generator(plan.over_budget),
        )

    def _tell_candidate(self, candidate: Candidate, *, done: int, total: int) -> None:
        self.watch.tell(
            "candidate",
            **{"pass": candidate.pass_index, "done": done, "total": total},
            generator=candidate.generator,
            failed=candidate.text is None,
            candidate_id=candidate.candidate_id,
            sample_index=candidate.sample_index,
            error=None if candidate.error is None else redact(candidate.error),
            late=is_late(candidate),
            **({"text": candidate.text} if self.ask.return_candidates else {}),
        )


def fault_of(judged: Sequence[ScoredCandidate]) -> ServiceError | None:
    """What does not work, where every candidate that was written could not be checked or scored. None of them is wrong
    for that, so there is nothing to abstain from."""
    reasons = [_fault(scored) for scored in judged]
    if not reasons or None in reasons:
        return None
    code = "check_failed" if judged[0].report.error is not None else "scoring_failed"
    return ServiceError(f"no candidate could be checked and scored: {reasons[0]}", 503, code, retry=False)


def _fault(scored: ScoredCandidate) -> str | None:
    if scored.report.error is not None:
        return scored.report.error
    return NO_ENERGY if scored.energies is None else None


def _by_generator(requests: Iterable[GenerationRequest]) -> dict[str, int]:
    return dict(Counter(request.generator for request in requests))


@dataclass(frozen=True, slots=True)
class Checker:
    backend: Backend
    watch: Watch

    async def check(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]:
        with self.watch.timed("check"):
            return await self.backend.check(problem, candidates)


@dataclass(frozen=True, slots=True)
class Scorer:
    backend: Backend
    watch: Watch
    prompt: str | None = None
    """What stands for the problem, when earlier turns of a chat belong to it; None: the problem's prompt."""
    reasoning: Reasoning = "answer"
    """What is scored of a candidate that thinks before it answers."""
    known: dict[str, Energies | None] = field(default_factory=dict)
    """By text. Candidates that say the same in the same words get the same energies, in whatever batches they came."""

    async def score(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Energies | None]:
        prompt = problem.prompt if self.prompt is None else self.prompt
        candidates = [found.as_scored(self.reasoning) for found in candidates]
        wanted = {found.text or "": found.candidate_id for found in candidates}
        texts = [TextToScore(name, prompt, text) for text, name in wanted.items() if text not in self.known]
        if texts:
            with self.watch.timed("score"):
                energies = await self.backend.score(texts)
            if len(energies) != len(texts):
                raise ScoringError(f"the scorer returned {len(energies)} results for {len(texts)} texts; restart it")
            self.known.update(zip([text.text for text in texts], energies, strict=True))
        return [_named(self.known[found.text or ""], found.candidate_id) for found in candidates]


@dataclass(frozen=True, slots=True)
class Baselines:
    """Scores of baselines (``decision.drawing.ScoreSource``). They are evidence beside other evidence, so a request is
    decided without them where they do not work."""

    backend: Backend
    watch: Watch
    prompt: str | None = None
    """As for ``Scorer``."""
    known: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """By text."""

    async def scores(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Mapping[str, float]]:
        prompt = problem.prompt if self.prompt is None else self.prompt
        wanted = {found.text or "": found.candidate_id for found in candidates}
        texts = [TextToScore(name, prompt, text) for text, name in wanted.items() if text not in self.known]
        if texts:
            try:
                with self.watch.timed("baselines"):
                    found = await self.backend.baseline_scores(texts)
            except RaydebmError as error:
                log.error("baselines failed", extra={"facts": {"reason": str(error)}})
                found = [{} for _ in texts]
            self.known.update(zip([text.text for text in texts], found, strict=True))
        return [self.known[candidate.text or ""] for candidate in candidates]


def _named(energies: Energies | None, candidate_id: str) -> Energies | None:
    return None if energies is None else replace(energies, candidate_id=candidate_id)
