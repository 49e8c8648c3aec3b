"""Answers one request: runs the triage loop on a backend and writes down what happened.

In:   an Ask (asking.py), or candidates to score.
Out:  the bodies of schema.py.
Does not know: Ray, HTTP.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from raydebm import tracing
from raydebm.decision.evidence.posterior import confidences
from raydebm.decision.loop import solve
from raydebm.decision.sampling.deadline import Deadline, is_late
from raydebm.errors import CeilingReachedError, LimitReachedError, RaydebmError, ServiceError
from raydebm.generators.replies import split_reasoning
from raydebm.generators.requests import CHARS_PER_TOKEN
from raydebm.records import Outcome, scored_text
from raydebm.serving import passthrough
from raydebm.serving.asking import Ask, read_problem
from raydebm.serving.bodies import NO_ANSWER, checked_item, decision_facts, response_body, score_item
from raydebm.serving.bundle import Bundle
from raydebm.serving.decisions.record import RecordSink, policy_id
from raydebm.serving.errors import as_service_error
from raydebm.serving.given import given_candidates, judged
from raydebm.serving.keeping import decision_record
from raydebm.serving.meter import Meter, NoMeter
from raydebm.serving.outcomes.monitor import ClaimMonitor
from raydebm.serving.parts import Backend, Baselines, Checker, Progress, Scorer, Source, TextToScore, Watch, fault_of
from raydebm.serving.progress import Teller
from raydebm.serving.schema import TriageResponse, Usage
from raydebm.serving.score_schema import ScoreItem, ScoreRequest, ScoreResponse
from raydebm.serving.telemetry import decision_attributes

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TriageService:
    """The service without its network: what a request means and what its answer says."""

    bundle: Bundle
    backend: Backend
    meter: Meter = field(default_factory=NoMeter)
    records: RecordSink | None = None
    """Where decisions are stored; None: nowhere."""
    claims: ClaimMonitor | None = None
    """Says whether a policy's promise is suspended; None: outcomes are not watched."""
    notices: Callable[[], list[str]] = list
    """What an operator should know though the service works, such as a refused change; ``/health`` tells it."""

    async def triage(self, ask: Ask, on_progress: Progress | None = None) -> TriageResponse:
        """Run the loop for one request.

        Raises:
            ServiceError: there is nothing to trust or mistrust: 503 when no generator wrote anything, or nothing that
                was written could be checked and scored; 504 when nothing was drawn, checked and scored within the
                deadline; 400 when ``max_usd`` pays for no candidate, 429 when the day's ceilings do not.
            RaydebmError: a part does not work (see ``triage.loop.solve``).
        """
        with tracing.span("triage", {"raydebm.task": ask.problem.task}) as span:
            try:
                answer = await self._triage(ask, on_progress)
            except Exception as error:
                self._note_failure(ask, error)
                raise
            span.set(decision_attributes(answer))
        return answer

    def _note_failure(self, ask: Ask, error: Exception) -> None:
        """Here and not around HTTP, where a stream that fails and a batch whose items fail are answered 200."""
        found = (
            as_service_error(error) if isinstance(error, RaydebmError) else ServiceError(repr(error), 500, "internal")
        )
        self.meter.failed(task=ask.problem.task, status=found.status, code=found.code)
        facts = {"task": ask.problem.task, "status": found.status, "code": found.code, "reason": str(found)}
        log.log(logging.WARNING if found.status >= 500 else logging.INFO, "no decision", extra={"facts": facts})

    async def _triage(self, ask: Ask, on_progress: Progress | None) -> TriageResponse:
        started = time.perf_counter()
        watch = Watch(on_progress)
        try:
            outcome = await self._solve(ask, watch, waited_s=started - (ask.received or started))
        finally:
            self.meter.drawn(watch.drawn)  # also of a request that fails or that nobody waits for any more
            _log_failed_candidates(watch)
        _check_written(outcome, watch)
        if not ask.passthrough:
            _check_judged(outcome)
        elapsed_ms = 1000 * (time.perf_counter() - started)
        versions = self.bundle.versions
        record = decision_record(ask, outcome, watch, elapsed_ms=elapsed_ms, versions=versions)
        is_stored = self.records is not None and self.records.put(record)
        answer = response_body(ask, outcome, watch, elapsed_ms, versions, suspended=self._suspension(ask))
        answer.record_id = record.record_id if is_stored else None
        self.meter.decided(answer)
        log.info("decision", extra={"facts": decision_facts(answer)})
        return answer

    def _suspension(self, ask: Ask) -> str | None:
        """Why the promise of the request's policy is not claimed at present; None where it is or there is none."""
        if self.claims is None or ask.policy.guarantee is None:
            return None
        found = self.claims.suspension(policy_id(ask.policy))
        return found.reason if found.suspended else None

    async def _solve(self, ask: Ask, watch: Watch, *, waited_s: float) -> Outcome:
        total_ms = ask.policy.deadline_ms
        deadline = None if total_ms is None else Deadline.starting_now(total_ms, spent_s=waited_s)
        teller, source = Teller(ask, watch), Source(ask, self.backend, watch, deadline)
        teller.begun()
        try:
            if ask.passthrough:
                return await passthrough.answered(ask, source)
            return await solve(
                ask.problem,
                task=ask.task,
                policy=ask.policy,
                source=source,
                checker=Checker(self.backend, watch),
                scorer=Scorer(self.backend, watch, ask.scored_prompt, self.bundle.reasoning),
                baselines=Baselines(self.backend, watch, ask.scored_prompt) if self.bundle.recipe.evidence else None,
                observer=teller,
                deadline=deadline,
            )
        except CeilingReachedError as error:
            raise ServiceError(
                f"no candidate can be paid for: {error}", 429, "insufficient_quota", retry=False
            ) from error
        except LimitReachedError as error:
            raise ServiceError(f"no candidate can be paid for: {error}", 400, "over_budget", "max_usd") from error

    async def score(self, request: ScoreRequest, *, request_id: str, received: float | None = None) -> ScoreResponse:
        """Energies of given candidates; checked too when a task is known.

        Like a drawn candidate's, a text's answer counts apart from its thinking. A text that is all thinking has no
        answer, and so no energy.

        Args:
            request: what to score.
            request_id: for the answer.
            received: ``time.perf_counter()`` when it arrived; None: now.

        Raises:
            ServiceError: the request is wrong, or a part does not work; 504 when there is not enough time for it.
        """
        work = self._score_pairs(request) if request.problem is None else self._score_candidates(request)
        items = await within_deadline(work, self.score_deadline_s(request.deadline_ms), received=received)
        tokens = sum(item.num_tokens or 0 for item in items)
        return ScoreResponse(
            id=f"score-{request_id}",
            created=int(time.time()),
            model=f"raydebm/{self.bundle.tasks[0]}",
            data=items,
            usage=Usage(prompt_tokens=tokens, total_tokens=tokens),
            versions=dict(self.bundle.versions),
        )

    def score_deadline_s(self, own: int | None) -> float | None:
        """Seconds that a request for scores may take; ``own`` is its deadline in milliseconds."""
        most_s = self.bundle.max_deadline_s
        return most_s if own is None else own / 1000 if most_s is None else min(own / 1000, most_s)

    def task_of(self, request: ScoreRequest) -> str:
        """Name of the task whose constraints a request with a problem is checked against.

        Raises:
            ServiceError: no task can read it, or the text is too long.
        """
        return read_problem(self.bundle, request.task, request.problem or "")[0].name

    async def _score_pairs(self, request: ScoreRequest) -> list[ScoreItem]:
        try:
            pairs = request.text_pairs()
        except ValueError as error:
            raise ServiceError(str(error), 400, "bad_texts", "text_2") from error
        self.check_lengths([first for first, _ in pairs], "text_1", self.bundle.max_problem_chars)
        self.check_lengths([second for _, second in pairs], "text_2", self.bundle.max_candidate_chars)
        self.check_tokens(sum(len(first) + len(second) for first, second in pairs))
        answers = [split_reasoning(second) for _, second in pairs]
        texts = [
            TextToScore(str(index), first, scored_text(text, thinking, self.bundle.reasoning) or text)
            for index, ((first, _), (text, thinking)) in enumerate(zip(pairs, answers, strict=True))
            if thinking is None or text.strip()
        ]
        energies = await self.backend.score(texts) if texts else []
        found = {text.candidate_id: energy for text, energy in zip(texts, energies, strict=True)}
        return [
            score_item(index, found[str(index)]) if str(index) in found else score_item(index, None, error=NO_ANSWER)
            for index in range(len(pairs))
        ]

    async def _score_candidates(self, request: ScoreRequest) -> list[ScoreItem]:
        problem_body, texts = request.problem, request.candidates
        if problem_body is None or texts is None:
            raise ServiceError("give both 'problem' and 'candidates'", 400, "missing_text", "problem")
        self.check_lengths(texts, "candidates", self.bundle.max_candidate_chars)
        task, problem = read_problem(self.bundle, request.task, problem_body)
        self.check_tokens(sum(len(problem.prompt) + len(text) for text in texts))
        policy = self.bundle.policies[task.name]
        pool = await judged(self.bundle, self.backend, problem, given_candidates(problem, texts))
        lambda_ = policy.lambda_ if request.lambda_ is None else request.lambda_
        confidence = {} if policy.posterior is None else confidences(policy.posterior.beliefs(pool))
        return [
            checked_item(index, scored, lambda_, confidence=confidence.get(scored.candidate.candidate_id))
            for index, scored in enumerate(pool)
        ]

    def check_tokens(self, num_chars: int) -> None:
        """Raises ServiceError 413 for texts that are too long together."""
        num_tokens, most = num_chars // CHARS_PER_TOKEN, self.bundle.max_score_tokens
        if num_tokens > most:
            message = (
                f"the texts to score, each with its problem, are about {num_tokens} tokens; at most {most} are "
                "accepted in one request, so send them in several"
            )
            raise ServiceError(message, 413, "too_many_tokens", "candidates")

    @staticmethod
    def check_lengths(texts: Iterable[str], param: str, limit: int) -> None:
        """Raises ServiceError 413 for a text that is too long."""
        longest = max((len(text) for text in texts), default=0)
        if longest > limit:
            message = f"a text has {longest} characters; at most {limit} are accepted"
            raise ServiceError(message, 413, "text_too_long", param)


async def within_deadline(work: Awaitable[T], most_s: float | None, *, received: float | None) -> T:
    """The result of the work, which is cancelled when its time is up.

    Args:
        work: what to wait for.
        most_s: seconds from its arrival; None: as long as it takes.
        received: ``time.perf_counter()`` when it arrived; None: now.

    Raises:
        ServiceError: 504.
    """
    spent_s = 0.0 if received is None else time.perf_counter() - received
    try:
        async with asyncio.timeout(None if most_s is None else max(0.0, most_s - spent_s)):
            return await work
    except TimeoutError as error:
        message = f"the texts were not scored within {most_s:g} s; send fewer in one request"
        raise ServiceError(message, 504, "deadline_exceeded") from error


def _check_judged(outcome: Outcome) -> None:
    """Raises ServiceError 503 when nothing that was written could be checked and scored."""
    written = [scored for scored in outcome.pool if scored.candidate.text is not None]
    if (fault := fault_of(written)) is not None:
        raise fault


def _check_written(outcome: Outcome, watch: Watch) -> None:
    """An abstention says that answers cannot be trusted; without any answer there is nothing to say that about."""
    if any(scored.candidate.text is not None for scored in outcome.pool):
        return
    if any(is_late(scored.candidate) for scored in outcome.pool):
        raise ServiceError(f"no candidate was ready within the deadline: {outcome.reason}", 504, "deadline_exceeded")
    # All tokens for thinking, a text that is too long: billed, and the same seeds mostly end the same way.
    is_paid = any(candidate.cost_usd or candidate.completion_tokens for candidate in watch.drawn)
    raise ServiceError(f"no generator answered: {outcome.reason}", 503, "generation_failed", retry=not is_paid)


def _log_failed_candidates(watch: Watch) -> None:
    """In the endpoint's and the checker's own words, one of each."""
    generators: dict[str, str] = {}
    for candidate in watch.drawn:
        if candidate.error is not None:
            generators.setdefault(candidate.generator, candidate.error)
    for name, error in generators.items():
        log.warning("generator failed", extra={"facts": {"generator": name, "reason": error}})
    checks = dict.fromkeys(scored.report.error for scored in watch.judged if scored.report.error is not None)
    for error in checks:
        log.warning("check failed", extra={"facts": {"reason": error}})
