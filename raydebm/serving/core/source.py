"""Candidates for the triage loop: drawn from the backend, within the limits of the request.

Does not know: Ray, HTTP.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from raydebm.decision.sampling.deadline import Deadline, now_s
from raydebm.decision.sampling.one_pass import Arrived
from raydebm.decision.sampling.waves import PassWaves
from raydebm.errors import LimitReachedError, RaydebmError, ResourceError
from raydebm.generators.requests import unanswered
from raydebm.records import Candidate, FailureKind, GenerationRequest, Message, Problem
from raydebm.serving.core.activity import Activity
from raydebm.serving.core.backend import Backend
from raydebm.serving.core.events import CandidateArrived, PassPlanned
from raydebm.serving.core.faults import fault_of
from raydebm.serving.core.request import RequestContext
from raydebm.serving.spending.affordability import Affordable, affordable, reserved, spent_amount, spent_usd, worst_of
from raydebm.serving.spending.ledger import Hold

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
        """See ``CandidateSource``; as much of the pass as the budget, the money and the day's ceilings allow.

        Raises:
            LimitReachedError: no candidate can be paid for.
            RaydebmError: the generators do not work, and nothing has arrived.
        """
        if pass_index > 1:
            self._check_parts()
        plan, hold = await self._reserved(self._plan(pass_index, messages))
        self.activity.over_budget.extend(plan.over_budget)
        feedback = None if messages is None else messages[-1]["content"]
        self.activity.report(PassPlanned(pass_index=pass_index, feedback=feedback, plan=plan))
        found: dict[str, Candidate] = {}
        asked: list[GenerationRequest] = []

        def take(candidate: Candidate) -> None:
            if candidate.candidate_id not in found:
                fitting = self._fitting(candidate)
                found[candidate.candidate_id] = fitting
                self.activity.drawn.append(fitting)  # now, because it was paid for whatever becomes of the pass
                self.activity.report(
                    CandidateArrived(context=self.context, candidate=fitting, done=len(found), total=len(plan.asked))
                )
                arrived(fitting)

        async def draw(requests: Sequence[GenerationRequest]) -> None:
            if asked:
                self._check_parts()
            asked.extend(requests)
            self.activity.asked.extend(requests)
            with self.activity.timed("generate"):
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
                self.activity.cancelled.extend(request for request in asked if request.candidate_id in waves.cancelled)
            await self._settled(hold, asked)
        return [found[request.candidate_id] for request in plan.asked if request.candidate_id in found]

    def _check_parts(self) -> None:
        """Raises LimitReachedError where the next candidates would fare no better, and cost as much."""
        if (fault := fault_of(self.activity.judged)) is not None:
            raise LimitReachedError(str(fault))

    async def _reserved(self, plan: Affordable) -> tuple[Affordable, Hold | None]:
        """The part of a pass that the day's ceilings allow. Raises CeilingReachedError when that is nothing."""
        account = self.context.account
        if account is None:
            return plan, None
        return await reserved(plan, account, worst_of(self.context.bundle.generator_configs()))

    async def _settled(self, hold: Hold | None, asked: Sequence[GenerationRequest]) -> None:
        account = self.context.account
        if hold is None or account is None:
            return
        worst = worst_of(self.context.bundle.generator_configs())
        try:
            await account.settle(hold, spent_amount(asked, self.activity.drawn, account, worst))
            self.activity.ceilings = await account.status()
        except ResourceError as error:  # the candidates were paid for; what was held goes on counting as spent
            log.error("spending was not settled", extra={"facts": {"reason": str(error)}})

    @property
    def _may_repeat(self) -> bool:
        """Whether a request may be sent twice, which may cost twice as much."""
        account = self.context.account
        return self.context.policy.max_usd is None and not (account is not None and account.limits_money)

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
            late = unanswered(request, self.deadline.not_drawn(), failure=FailureKind.LATE)
            take(late)  # changes nothing where one has arrived

    def _plan(self, pass_index: int, messages: tuple[Message, ...] | None) -> Affordable:
        """Raises LimitReachedError when the money that is left pays for no candidate of the pass."""
        requests, policy = self.context.requests(pass_index, messages), self.context.policy
        num_drawn = len(self.activity.asked) - len(self.activity.cancelled)
        most = None if policy.budget is None else policy.budget - num_drawn
        if policy.max_usd is None:
            return affordable(requests, most=most)
        worst = worst_of(self.context.bundle.generator_configs())
        left_usd = policy.max_usd - spent_usd(self.activity.asked, self.activity.drawn, worst)
        plan = affordable(requests, most=most, left_usd=left_usd, worst=worst)
        if not plan.asked:
            self.activity.over_budget.extend(plan.over_budget)
            raise LimitReachedError(
                f"of max_usd {policy.max_usd:g} at least {max(0.0, left_usd):.3g} US dollars are left, and the "
                f"cheapest candidate may cost {plan.cheapest_usd:.3g}"
            )
        return plan

    def _fitting(self, candidate: Candidate) -> Candidate:
        """A text beyond the limit counts as failed: it would cost memory in every part that follows."""
        limit, size = self.context.bundle.max_candidate_chars, len(candidate.text or "")
        if size <= limit:
            return candidate
        return replace(candidate, text=None, error=f"the text has {size} characters; at most {limit} are taken")
