"""Candidates for the triage loop, sampled from the backend within the limits of the request.

Does not know: Ray, HTTP.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from raydebm.decision.sampling.deadline import Deadline, now_s
from raydebm.decision.sampling.one_pass import Arrived
from raydebm.decision.sampling.waves import PassWaves
from raydebm.errors import LimitReachedError, RaydebmError, ResourceError
from raydebm.generators.requests import unanswered
from raydebm.records import Candidate, FailureKind, GenerationRequest, Message, Problem
from raydebm.service.core.activity import Activity, CandidateArrived, PassPlanned
from raydebm.service.core.backend import Backend
from raydebm.service.core.evaluators import fault_of
from raydebm.service.core.request import RequestContext
from raydebm.service.spending.ledger import Hold
from raydebm.service.spending.limits import Affordable, affordable, spent, spent_usd, worst_of

log = logging.getLogger(__name__)


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
