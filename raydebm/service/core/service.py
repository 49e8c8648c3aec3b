"""Answer one request: run the triage loop on a backend and record the result.

In:   a ``request.RequestContext``.
Out:  a ``result.TriageResult``.
Does not know: Ray, HTTP.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from raydebm import tracing
from raydebm.decision.loop import solve
from raydebm.decision.sampling.deadline import Deadline, is_late
from raydebm.decision.sampling.one_pass import Parts
from raydebm.errors import CeilingReachedError, LimitReachedError, RaydebmError, ServiceError, as_service_error
from raydebm.records import Decision, Outcome
from raydebm.service.core.activity import Activity, Progress, ProgressObserver
from raydebm.service.core.parts import Backend, BackendChecker, Baselines, Scorer, Source, fault_of
from raydebm.service.core.request import RequestContext
from raydebm.service.core.result import Meter, TriageResult, decision_attributes, decision_facts, decision_record
from raydebm.service.settings.bundle import Bundle
from raydebm.service.store.outcomes import ClaimMonitor
from raydebm.service.store.record import summary_of
from raydebm.service.store.writer import DecisionWriter

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TriageService:
    """The service without its network."""

    bundle: Bundle
    """All served runs, the first one's fields at the top."""
    backend: Backend
    meter: Meter = field(default_factory=Meter)
    records: DecisionWriter | None = None
    """Store of decisions. Default: none."""
    claims: ClaimMonitor | None = None
    """Suspension of guarantees by outcomes. Default: outcomes are not watched."""
    notices: Callable[[], list[str]] = list
    """Notices of the replica to the operator, such as a refused change."""

    async def triage(self, context: RequestContext, on_progress: Progress | None = None) -> TriageResult:
        """Run the loop for one request.

        Raises:
            ServiceError: there is no basis for a decision: 503 when no generator wrote anything, or nothing that was
                written could be checked and scored; 504 when the deadline left out every candidate, or at least half of
                them and the others do not suffice for an answer; 400 when ``max_usd`` pays for no candidate, 429 when
                the day's ceilings do not.
            RaydebmError: a part fails (see ``decision.loop.solve``). Once anything was paid, every failure is a
                ServiceError without ``retry``.
        """
        activity = Activity(on_progress)
        with tracing.span("triage", {"raydebm.task": context.problem.task}) as span:
            try:
                result = await self._triage(context, activity)
            except Exception as error:
                self._note_failure(context, error)
                if activity.is_paid:
                    raise _paid_failure(error, context) from error
                raise
            span.set(decision_attributes(result))
        return result

    def _note_failure(self, context: RequestContext, error: Exception) -> None:
        """Failures are noted here and not around HTTP, because a failed stream has status 200."""
        service_error = (
            as_service_error(error) if isinstance(error, RaydebmError) else ServiceError(repr(error), 500, "internal")
        )
        self.meter.failed(task=context.problem.task, status=service_error.status, code=service_error.code)
        facts = {
            "task": context.problem.task,
            "status": service_error.status,
            "code": service_error.code,
            "reason": str(service_error),
        }
        log.log(logging.WARNING if service_error.status >= 500 else logging.INFO, "no decision", extra={"facts": facts})

    async def _triage(self, context: RequestContext, activity: Activity) -> TriageResult:
        started = time.perf_counter()
        try:
            outcome = await self._solve(context, activity, waited_s=started - (context.received or started))
        finally:
            # Also for requests that fail or are abandoned.
            self.meter.drawn(activity.drawn)
            _log_failed_candidates(activity)
        _check_written(outcome, activity)
        _check_in_time(outcome)
        _check_judged(outcome)
        elapsed_ms = 1000 * (time.perf_counter() - started)
        record = decision_record(context, outcome, activity, elapsed_ms=elapsed_ms)
        result = TriageResult(
            context=context,
            record=record,
            summary=summary_of(record),
            activity=activity,
            is_stored=self.records is not None and self.records.put(record),
            suspended=None if self.claims is None else self.claims.suspended(record.policy),
        )
        self.meter.decided(result)
        log.info("decision", extra={"facts": decision_facts(result)})
        return result

    async def _solve(self, context: RequestContext, activity: Activity, *, waited_s: float) -> Outcome:
        total_ms = context.policy.deadline_ms
        deadline = None if total_ms is None else Deadline.starting_now(total_ms, spent_s=waited_s)
        backend, bundle = self.backend.serving(context.bundle), context.bundle
        observer, source = ProgressObserver(context, activity), Source(context, backend, activity, deadline)
        observer.begun()
        try:
            parts = Parts(
                task=context.task,
                source=source,
                checker=BackendChecker(backend, activity),
                scorer=Scorer(backend, activity, context.scored_prompt, bundle.reasoning),
                baselines=Baselines(backend, activity, context.scored_prompt) if bundle.recipe.evidence else None,
                observer=observer,
                deadline=deadline,
            )
            return await solve(context.problem, parts=parts, policy=context.policy)
        except CeilingReachedError as error:
            raise ServiceError(
                f"no candidate can be paid for: {error}", 429, "insufficient_quota", retry=False
            ) from error
        except LimitReachedError as error:
            raise ServiceError(f"no candidate can be paid for: {error}", 400, "over_budget", "max_usd") from error


def _paid_failure(error: Exception, context: RequestContext) -> ServiceError:
    """Failure of a request that has paid for candidates and would pay again if resent."""
    if isinstance(error, RaydebmError):
        known = as_service_error(error)
        return ServiceError(str(known), known.status, known.code, known.param, retry=False)
    log.error("request %s failed", context.request_id, exc_info=error)
    message = f"internal error; the log has it under request id {context.request_id}"
    return ServiceError(message, 500, "internal", retry=False)


def _check_judged(outcome: Outcome) -> None:
    """Raise ServiceError 503 if no answered candidate could be checked and scored."""
    written = [scored for scored in outcome.pool if scored.candidate.text is not None]
    if (fault := fault_of(written)) is not None:
        raise fault


def _check_written(outcome: Outcome, activity: Activity) -> None:
    """Raise a ServiceError if no candidate was written: an abstention would say that answers cannot be trusted."""
    if any(scored.candidate.text is not None for scored in outcome.pool):
        return
    if any(is_late(scored.candidate) for scored in outcome.pool):
        raise ServiceError(f"no candidate was ready within the deadline: {outcome.reason}", 504, "deadline_exceeded")
    # For example, all tokens were spent on thinking: billed, and the same seeds mostly end the same way.
    is_paid = any(candidate.cost_usd or candidate.completion_tokens for candidate in activity.drawn)
    raise ServiceError(f"no generator answered: {outcome.reason}", 503, "generation_failed", retry=not is_paid)


def _check_in_time(outcome: Outcome) -> None:
    """Raise ServiceError 504 if the deadline, and not the answers, is the reason to abstain."""
    num_late = sum(is_late(scored.candidate) for scored in outcome.pool)
    if outcome.decision is Decision.ABSTAIN and 2 * num_late >= len(outcome.pool):
        raise ServiceError(f"too few candidates came in time: {outcome.reason}", 504, "deadline_exceeded")


def _log_failed_candidates(activity: Activity) -> None:
    """Log each distinct error of the endpoint and the checker once, verbatim."""
    generators: dict[str, str] = {}
    for candidate in activity.drawn:
        if candidate.error is not None:
            generators.setdefault(candidate.generator, candidate.error)
    for name, error in generators.items():
        log.warning("generator failed", extra={"facts": {"generator": name, "reason": error}})
    checks = dict.fromkeys(scored.report.error for scored in activity.judged if scored.report.error is not None)
    for error in checks:
        log.warning("check failed", extra={"facts": {"reason": error}})
