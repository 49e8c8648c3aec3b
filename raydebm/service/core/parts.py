"""The parts of the triage loop on the service's backend: candidates, checks, energies, and baselines as evidence.

``Backend`` is the protocol of what is behind the service: remote parts in production, plain objects in tests.
Does not know: Ray, HTTP.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from raydebm.decision.sampling.deadline import Deadline, now_s
from raydebm.decision.sampling.one_pass import Arrived
from raydebm.decision.sampling.waves import PassWaves
from raydebm.errors import LimitReachedError, RaydebmError, ResourceError, ScoringError, ServiceError
from raydebm.generators.requests import CHARS_PER_TOKEN, unanswered
from raydebm.records import (
    Candidate,
    ConstraintReport,
    Energies,
    FailureKind,
    GenerationRequest,
    Message,
    Problem,
    Reasoning,
    ScoredCandidate,
)
from raydebm.scorer.texts import TextToScore
from raydebm.service.core.activity import Activity, CandidateArrived, PassPlanned
from raydebm.service.core.request import RequestContext
from raydebm.service.settings.bundle import Bundle
from raydebm.service.spending import Affordable, Hold, affordable, spent, spent_usd, worst_of


class Backend(Protocol):
    """The parts behind the service. Each call takes a list, because a call to another replica costs milliseconds."""

    async def generate(
        self, requests: Sequence[GenerationRequest], on_candidate: Arrived, *, may_repeat: bool
    ) -> list[Candidate]:
        """One candidate per request, in order; failed ones have ``error``.

        Args:
            requests: generation requests.
            on_candidate: callback for each candidate as it arrives.
            may_repeat: permission to resend a request that may already be billed.
        """
        ...

    async def check(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]:
        """One report per candidate, in order, from the task's gold-free checks."""
        ...

    async def score(self, texts: Sequence[TextToScore]) -> list[Energies | None]:
        """Energies per text, in order; None for a text that could not be scored."""
        ...

    async def baseline_scores(self, texts: Sequence[TextToScore]) -> list[Mapping[str, float]]:
        """Scores by baseline name per text, in order, from the baselines that are evidence."""
        ...

    def serving(self, bundle: Bundle) -> "Backend":
        """The same backend for another run: its generators, checks and adapters."""
        ...

    async def status(self) -> dict[str, Any]:
        """Loaded models and state of each part.

        Raises:
            ServiceError: a part is not available.
        """
        ...


log = logging.getLogger(__name__)

NO_ENERGY = "the ensemble gave no finite energy"
NO_ANSWER = "no answer in the requested output format was found in the text"


def fault_of(judged: Sequence[ScoredCandidate]) -> ServiceError | None:
    """Error to raise if no answered candidate could be checked and scored, else None.

    Such candidates are not known to be wrong, so an abstention would be misleading.
    """
    reasons = [_fault(scored) for scored in judged]
    if not reasons or None in reasons:
        return None
    code = "check_failed" if judged[0].report.error is not None else "scoring_failed"
    return ServiceError(f"no candidate could be checked and scored: {reasons[0]}", 503, code, retry=False)


def _fault(scored: ScoredCandidate) -> str | None:
    if scored.report.error is not None:
        return scored.report.error
    return NO_ENERGY if scored.energies is None else None


def check_tokens(num_chars: int, most: int, param: str = "candidates") -> None:
    """Raise ServiceError 413 if the texts have more than ``most`` tokens together, estimated from their length."""
    num_tokens = num_chars // CHARS_PER_TOKEN
    if num_tokens > most:
        message = (
            f"the texts to score, each with its problem, are about {num_tokens} tokens; at most {most} are "
            "accepted in one request, so send them in several"
        )
        raise ServiceError(message, 413, "too_many_tokens", param)


def check_lengths(texts: Iterable[str], param: str, limit: int) -> None:
    """Raise ServiceError 413 for a text that is too long."""
    longest = max((len(text) for text in texts), default=0)
    if longest > limit:
        message = f"a text has {longest} characters; at most {limit} are accepted"
        raise ServiceError(message, 413, "text_too_long", param)


@dataclass(frozen=True, slots=True)
class BackendChecker:
    """The gold-free checks of the task."""

    backend: Backend
    activity: Activity

    async def check(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]:
        """One report per candidate, in order."""
        with self.activity.timed("check"):
            return await self.backend.check(problem, candidates)


@dataclass(frozen=True, slots=True)
class Scorer:
    """The ensemble."""

    backend: Backend
    activity: Activity
    prompt: str | None = None
    """Problem text to score, with the earlier turns of a chat. Default: the problem's prompt."""
    reasoning: Reasoning = "answer"
    """Handling of a candidate's thinking before its answer."""
    known: dict[str, Energies | None] = field(default_factory=dict)
    """Energies by text, so that equal texts get equal energies regardless of their batches."""

    async def score(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Energies | None]:
        """Energies per candidate, in order; None for one that could not be scored.

        Raises:
            ScoringError: the backend returned the wrong number of results.
        """
        prompt = problem.prompt if self.prompt is None else self.prompt
        candidates = [candidate.as_scored(self.reasoning) for candidate in candidates]
        wanted = {candidate.text or "": candidate.candidate_id for candidate in candidates}
        texts = [TextToScore(name, prompt, text) for text, name in wanted.items() if text not in self.known]
        if texts:
            with self.activity.timed("score"):
                energies = await self.backend.score(texts)
            if len(energies) != len(texts):
                raise ScoringError(f"the scorer returned {len(energies)} results for {len(texts)} texts; restart it")
            self.known.update(zip([text.text for text in texts], energies, strict=True))
        return [_named(self.known[candidate.text or ""], candidate.candidate_id) for candidate in candidates]


@dataclass(frozen=True, slots=True)
class Baselines:
    """Scores of baselines (``decision.sampling.one_pass.ScoreSource``).

    They are optional evidence: if they fail, the request is decided without them and without its guarantee
    (``result.decided_under``).
    """

    backend: Backend
    activity: Activity
    prompt: str | None = None
    """As in ``Scorer``."""
    known: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """Scores by text."""

    async def scores(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Mapping[str, float]]:
        """Scores by name per candidate, in order; empty if the baselines fail."""
        prompt = problem.prompt if self.prompt is None else self.prompt
        wanted = {candidate.text or "": candidate.candidate_id for candidate in candidates}
        texts = [TextToScore(name, prompt, text) for text, name in wanted.items() if text not in self.known]
        if texts:
            try:
                with self.activity.timed("baselines"):
                    scores = await self.backend.baseline_scores(texts)
                self.known.update(zip([text.text for text in texts], scores, strict=True))
            except Exception as error:
                self.activity.has_all_evidence = False
                is_ours = isinstance(error, RaydebmError)
                facts = {"reason": str(error) if is_ours else type(error).__name__}
                log.error("baselines failed", exc_info=not is_ours, extra={"facts": facts})
                self.known.update({text.text: {} for text in texts})
        return [self.known[candidate.text or ""] for candidate in candidates]


def _named(energies: Energies | None, candidate_id: str) -> Energies | None:
    return None if energies is None else replace(energies, candidate_id=candidate_id)


@dataclass(frozen=True, slots=True)
class Source:
    """The loop's source of candidates (``decision.sampling.one_pass.CandidateSource``)."""

    context: RequestContext
    backend: Backend
    activity: Activity
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
        """See ``CandidateSource``; as much of the pass as the budget, the money and the daily ceilings allow.

        Raises:
            LimitReachedError: no candidate can be paid for.
            RaydebmError: the generators fail before any candidate arrives.
        """
        if pass_index > 1:
            self.check_parts()
        wanted = self.context.requests(pass_index, messages)
        plan, hold = await self._reserved(self._plan(wanted))
        self.activity.over_budget.extend(plan.over_budget)
        feedback = None if messages is None else messages[-1]["content"]
        drawing = _Drawing(self, plan, arrived)
        try:
            self.activity.report(PassPlanned(pass_index=pass_index, feedback=feedback, plan=plan))
            await (drawing.draw(plan.asked) if waves is None else waves.run(plan.asked, drawing.draw))
        except (RaydebmError, OSError) as error:
            if not drawing.candidates:
                raise
            drawing.give_up(str(error))  # arrived candidates were paid for, and can be decided on
        finally:
            if waves is not None:
                cancelled = (request for request in drawing.asked if request.candidate_id in waves.cancelled)
                self.activity.cancelled.extend(cancelled)
            await self._settled(hold, drawing.asked)
        return [
            candidate
            for request in plan.asked
            if (candidate := drawing.candidates.get(request.candidate_id)) is not None
        ]

    def check_parts(self) -> None:
        """Raise LimitReachedError if a part fails such that further candidates would only cost more."""
        if (fault := fault_of(self.activity.judged)) is not None:
            raise LimitReachedError(str(fault))

    async def _reserved(self, plan: Affordable) -> tuple[Affordable, Hold | None]:
        """The part of a pass within the daily ceilings. Raises CeilingReachedError if it is empty."""
        account = self.context.account
        if account is None or not plan.asked:
            return plan, None
        return await account.reserved(plan, worst_of(self.context.bundle.generator_configs()))

    async def _settled(self, hold: Hold | None, asked: Sequence[GenerationRequest]) -> None:
        account = self.context.account
        if account is None:
            return
        worst = worst_of(self.context.bundle.generator_configs())
        try:
            if hold is not None:
                await account.settle(hold, spent(asked, self.activity.drawn, account.known(worst)))
            self.activity.ceilings = await account.status()
        except ResourceError as error:  # the candidates were paid for; the hold still counts as spent
            log.error("spending was not settled", extra={"facts": {"reason": str(error)}})

    @property
    def may_repeat(self) -> bool:
        """Permission to resend a request, which may double its cost."""
        account = self.context.account
        return self.context.policy.max_usd is None and not (account is not None and account.limits_money)

    async def draw(self, requests: Sequence[GenerationRequest], take: Arrived, *, may_repeat: bool) -> None:
        """Sample all candidates until the deadline, and add a late one for each missing candidate."""
        if self.deadline is None:
            for candidate in await self.backend.generate(requests, take, may_repeat=may_repeat):
                take(candidate)
            return
        if now_s() < self.deadline.draw_until_s:
            try:
                async with asyncio.timeout_at(self.deadline.draw_until_s) as time_is_up:
                    for candidate in await self.backend.generate(requests, take, may_repeat=may_repeat):
                        take(candidate)
            except TimeoutError:
                if not time_is_up.expired():
                    raise
        for request in requests:
            late = unanswered(request, self.deadline.not_drawn(), failure=FailureKind.LATE)
            take(late)  # no effect if one has arrived

    def _plan(self, requests: Sequence[GenerationRequest]) -> Affordable:
        """The affordable part of a pass.

        Raises:
            LimitReachedError: the remaining money pays for no candidate of the pass.
        """
        policy, activity = self.context.policy, self.activity
        num_drawn = len(activity.asked) - len(activity.cancelled)
        most = None if policy.budget is None else policy.budget - num_drawn
        if policy.max_usd is None:
            return affordable(requests, most=most)
        worst = worst_of(self.context.bundle.generator_configs())
        left_usd = max(0.0, policy.max_usd - spent_usd(activity.asked, activity.drawn, worst))
        plan = affordable(requests, most=most, left_usd=left_usd, worst=worst)
        if not plan.asked:
            activity.over_budget.extend(plan.over_budget)
            raise LimitReachedError(
                f"of max_usd {policy.max_usd:g} at least {left_usd:.3g} US dollars are left, and the "
                f"cheapest candidate may cost {plan.cheapest_usd:.3g}"
            )
        return plan

    def fitting(self, candidate: Candidate) -> Candidate:
        """The candidate, failed if its text is over the limit: it would cost memory in every later part."""
        limit, size = self.context.bundle.max_candidate_chars, len(candidate.text or "")
        if size <= limit:
            return candidate
        return replace(candidate, text=None, error=f"the text has {size} characters; at most {limit} are taken")


@dataclass(slots=True)
class _Drawing:
    """One pass while its candidates arrive."""

    source: Source
    plan: Affordable
    arrived: Arrived
    candidates: dict[str, Candidate] = field(default_factory=dict)
    asked: list[GenerationRequest] = field(default_factory=list)

    async def draw(self, requests: Sequence[GenerationRequest]) -> None:
        """Sample a wave, or the whole pass."""
        if self.asked:
            self.source.check_parts()
        self.asked.extend(requests)
        self.source.activity.asked.extend(requests)
        with self.source.activity.timed("generate"):
            await self.source.draw(requests, self._take, may_repeat=self.source.may_repeat)

    def give_up(self, reason: str) -> None:
        """Count requested candidates that have not arrived as failed."""
        for request in self.asked:
            if request.candidate_id not in self.candidates:
                self._take(unanswered(request, reason))

    def _take(self, candidate: Candidate) -> None:
        if candidate.candidate_id in self.candidates:
            return
        fitting = self.source.fitting(candidate)
        self.source.activity.drawn.append(fitting)  # now, because it was paid for even if the pass fails
        self.candidates[fitting.candidate_id] = fitting
        event = CandidateArrived(
            context=self.source.context, candidate=fitting, done=len(self.candidates), total=len(self.plan.asked)
        )
        self.source.activity.report(event)
        self.arrived(fitting)
