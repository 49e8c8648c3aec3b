"""Candidates for the triage loop: drawn from the backend, within the limits of the request.

Does not know: Ray, HTTP.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from raydebm.decision.sampling.deadline import Deadline, now_s
from raydebm.decision.sampling.one_pass import Arrived
from raydebm.decision.sampling.waves import PassWaves
from raydebm.errors import CeilingReachedError, LimitReachedError, RaydebmError, ResourceError
from raydebm.generators.requests import unanswered
from raydebm.records import Candidate, FailureKind, GenerationRequest, Message, Problem
from raydebm.serving.core.activity import Activity
from raydebm.serving.core.backend import Backend
from raydebm.serving.core.events import CandidateArrived, PassPlanned
from raydebm.serving.core.faults import fault_of
from raydebm.serving.core.request import RequestContext
from raydebm.serving.spending.affordability import Affordable, affordable, reserved, spent_amount, spent_usd, worst_of
from raydebm.serving.spending.candidate_store import ReusedCandidate
from raydebm.serving.spending.ledger import Hold
from raydebm.serving.spending.reuse import Reuse

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Source:
    """The loop's source of candidates (``decision.sampling.one_pass.CandidateSource``)."""

    context: RequestContext
    backend: Backend
    activity: Activity
    deadline: Deadline | None = None
    reuse: Reuse | None = None
    """Candidates that earlier requests paid for; None: nothing is reused."""

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
            self.check_parts()
        wanted = self.context.requests(pass_index, messages)
        known = {} if self.reuse is None else await self.reuse.find(wanted)
        plan, hold = await self._reserved(self._plan(wanted, known), known)
        self.activity.over_budget.extend(plan.over_budget)
        feedback = None if messages is None else messages[-1]["content"]
        drawing = _Drawing(self, plan, known, arrived)
        try:
            self.activity.report(PassPlanned(pass_index=pass_index, feedback=feedback, plan=plan))
            await (drawing.draw(plan.asked) if waves is None else waves.run(plan.asked, drawing.draw))
        except (RaydebmError, OSError) as error:
            if not drawing.candidates:
                raise
            drawing.give_up(str(error))  # what has arrived was paid for, and can be decided about
        finally:
            if waves is not None:
                cancelled = (request for request in drawing.asked if request.candidate_id in waves.cancelled)
                self.activity.cancelled.extend(cancelled)
            await self._settled(hold, drawing.asked)
            if self.reuse is not None:
                await self.reuse.keep(drawing.asked, drawing.paid)
        return [
            candidate
            for request in plan.asked
            if (candidate := drawing.candidates.get(request.candidate_id)) is not None
        ]

    def check_parts(self) -> None:
        """Raises LimitReachedError where the next candidates would fare no better, and cost as much."""
        if (fault := fault_of(self.activity.judged)) is not None:
            raise LimitReachedError(str(fault))

    async def _reserved(self, plan: Affordable, known: Collection[str]) -> tuple[Affordable, Hold | None]:
        """The part of a pass that is reused or that the day's ceilings allow. Raises CeilingReachedError when that is
        nothing."""
        account = self.context.account
        to_pay = [request for request in plan.asked if request.candidate_id not in known]
        if account is None or not to_pay:
            return plan, None
        try:
            part, hold = await reserved(
                replace(plan, asked=to_pay), account, worst_of(self.context.bundle.generator_configs())
            )
        except CeilingReachedError:
            if len(to_pay) == len(plan.asked):
                raise
            part, hold = replace(plan, asked=[], over_budget=[*plan.over_budget, *to_pay]), None
        paid = {request.candidate_id for request in part.asked}
        asked = [request for request in plan.asked if request.candidate_id in known or request.candidate_id in paid]
        return replace(part, asked=asked), hold

    async def _settled(self, hold: Hold | None, asked: Sequence[GenerationRequest]) -> None:
        account = self.context.account
        if account is None:
            return
        worst = worst_of(self.context.bundle.generator_configs())
        try:
            if hold is not None:
                await account.settle(hold, spent_amount(asked, self.activity.drawn, account, worst))
            self.activity.ceilings = await account.status()
        except ResourceError as error:  # the candidates were paid for; what was held goes on counting as spent
            log.error("spending was not settled", extra={"facts": {"reason": str(error)}})

    @property
    def may_repeat(self) -> bool:
        """Whether a request may be sent twice, which may cost twice as much."""
        account = self.context.account
        return self.context.policy.max_usd is None and not (account is not None and account.limits_money)

    async def draw(self, requests: Sequence[GenerationRequest], take: Arrived, *, hedge: bool) -> None:
        """All candidates, or those that come in time and a late one for each of the others."""
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

    def _plan(self, requests: Sequence[GenerationRequest], known: Collection[str]) -> Affordable:
        """What of a pass is asked for. Reused candidates count for the budget and cost nothing.

        Raises:
            LimitReachedError: the money that is left pays for no candidate of the pass.
        """
        policy, activity = self.context.policy, self.activity
        num_drawn = len(activity.asked) - len(activity.cancelled) + len(activity.reused)
        most = None if policy.budget is None else policy.budget - num_drawn
        if policy.max_usd is None:
            return affordable(requests, most=most)
        worst = worst_of(self.context.bundle.generator_configs())
        left_usd = max(0.0, policy.max_usd - spent_usd(activity.asked, activity.drawn, worst))
        plan = affordable(
            requests,
            most=most,
            left_usd=left_usd,
            worst=lambda request: 0.0 if request.candidate_id in known else worst(request),
        )
        if not plan.asked:
            activity.over_budget.extend(plan.over_budget)
            raise LimitReachedError(
                f"of max_usd {policy.max_usd:g} at least {left_usd:.3g} US dollars are left, and the "
                f"cheapest candidate may cost {plan.cheapest_usd:.3g}"
            )
        return plan

    def fitting(self, candidate: Candidate) -> Candidate:
        """A text beyond the limit counts as failed: it would cost memory in every part that follows."""
        limit, size = self.context.bundle.max_candidate_chars, len(candidate.text or "")
        if size <= limit:
            return candidate
        return replace(candidate, text=None, error=f"the text has {size} characters; at most {limit} are taken")


@dataclass(slots=True)
class _Drawing:
    """One pass while its candidates come."""

    source: Source
    plan: Affordable
    known: Mapping[str, ReusedCandidate]
    """What need not be asked for, by candidate id."""
    arrived: Arrived
    candidates: dict[str, Candidate] = field(default_factory=dict)
    asked: list[GenerationRequest] = field(default_factory=list)
    paid: list[Candidate] = field(default_factory=list)

    async def draw(self, requests: Sequence[GenerationRequest]) -> None:
        """Take what is known of a wave, or of the whole pass, and ask for the rest."""
        if self.asked:
            self.source.check_parts()
        to_pay = []
        for request in requests:
            if (reused := self.known.get(request.candidate_id)) is None:
                to_pay.append(request)
            else:
                self._reuse(reused)
        if not to_pay:
            return
        self.asked.extend(to_pay)
        self.source.activity.asked.extend(to_pay)
        with self.source.activity.timed("generate"):
            await self.source.draw(to_pay, self._pay, hedge=self.source.may_repeat)

    def give_up(self, reason: str) -> None:
        """Count what was asked and has not come as failed."""
        for request in self.asked:
            if request.candidate_id not in self.candidates:
                self._pay(unanswered(request, reason))

    def _pay(self, candidate: Candidate) -> None:
        if candidate.candidate_id not in self.candidates:
            fitting = self.source.fitting(candidate)
            self.paid.append(fitting)
            self.source.activity.drawn.append(fitting)  # now, because it was paid for whatever becomes of the pass
            self._take(fitting)

    def _reuse(self, reused: ReusedCandidate) -> None:
        self.source.activity.reused.append(reused)
        # This request pays nothing for it: sums over decisions, shadows and replays count its cost once.
        cost_usd = None if reused.candidate.cost_usd is None else 0.0
        self._take(self.source.fitting(replace(reused.candidate, cost_usd=cost_usd)), age_s=reused.age_s)

    def _take(self, candidate: Candidate, *, age_s: float | None = None) -> None:
        self.candidates[candidate.candidate_id] = candidate
        event = CandidateArrived(
            context=self.source.context,
            candidate=candidate,
            done=len(self.candidates),
            total=len(self.plan.asked),
            age_s=age_s,
        )
        self.source.activity.report(event)
        self.arrived(candidate)
