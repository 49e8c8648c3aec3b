"""The service itself, without its network: requests, the triage loop on a backend, and results. An invalid request
raises a ServiceError that names the field.

Seven conditions void a guarantee for one decision, because calibration did not make its decisions so: a changed
policy (``Policy.changed``), sampling that differs from calibration's, earlier turns of a chat, a ceiling that can bind,
a limit of time or money that left candidates out, evidence that failed, other adapters. A different seed does not: any
seed samples from the same distribution.

Independent of: Ray, HTTP.
"""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from pydantic import Field

from raydebm import tracing
from raydebm.decision.evidence.posterior import Belief
from raydebm.decision.loop import solve
from raydebm.decision.policy import Policy
from raydebm.decision.sampling.deadline import Deadline, is_late, now_s
from raydebm.decision.sampling.one_pass import Arrived, Observer, Parts
from raydebm.decision.sampling.waves import PassWaves
from raydebm.errors import (
    CeilingReachedError,
    ConfigError,
    LimitReachedError,
    RaydebmError,
    ResourceError,
    ScoringError,
    ServiceError,
    as_service_error,
)
from raydebm.generators.requests import PassRequests, unanswered, worst_cost
from raydebm.identity import content_id
from raydebm.records import (
    Candidate,
    ConstraintReport,
    Decision,
    Energies,
    FailureKind,
    GenerationRequest,
    Message,
    Outcome,
    PassRecord,
    PassStop,
    Problem,
    Reasoning,
    ScoredCandidate,
)
from raydebm.scorer.texts import TextToScore
from raydebm.service.logs import redact
from raydebm.service.settings import Body, Bundle, Data, Overrides, Text
from raydebm.service.spending import (
    Account,
    Affordable,
    CeilingStatus,
    Hold,
    affordable,
    check_count,
    no_prices,
    spent,
)
from raydebm.service.store.outcomes import ClaimMonitor
from raydebm.service.store.record import DecisionRecord, DecisionSummary, DecisionWriter, new_record_id, summary_of
from raydebm.tasks.base import Task

log = logging.getLogger(__name__)

T = TypeVar("T")
NO_ENERGY = "the ensemble gave no finite energy"
NO_ANSWER = "no answer in the requested output format was found in the text"
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
"""OpenAI's chat roles -> roles for generators: few endpoints know ``developer``."""


# ---- requests -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A chat, with the message that is the problem."""

    problem: str
    """Text of the last user message."""
    context: tuple[Message, ...]
    """Earlier turns that have text, in order."""
    num_ignored: int
    """Number of later messages, such as the start of an answer, which are ignored: generators write whole answers."""


def chat_for_generators(messages: Sequence[Message], context: Sequence[Message]) -> tuple[Message, ...]:
    """The chat for generators: the task's instructions, the client's system messages, the earlier turns, the rest."""
    first = next((index for index, said in enumerate(messages) if said["role"] != "system"), len(messages))
    systems = [said for said in context if said["role"] == "system"]
    turns = [said for said in context if said["role"] != "system"]
    return (*messages[:first], *systems, *turns, *messages[first:])


NOT_A_PROBLEM = (RaydebmError, KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError)
"""Exceptions of tasks for a text or ``data`` that they cannot parse."""


class ProblemBody(Body):
    """A problem whose structure the client already has, instead of a text to read it from."""

    prompt: Text = Field(min_length=1)
    data: Data | None = None
    """The task's own fields, as in ``problems.parquet``. Default: the task reads them from the prompt."""
    problem_id: Text | None = Field(None, min_length=1, max_length=200)
    difficulty: Text = ""
    kind: Text = Field("", max_length=200)
    """Kind of question, as in the run's problems; authors' skills differ by kind. Default: the task's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """One validated request. Immutable, so that concurrent requests share no state."""

    request_id: str
    problem: Problem
    task: Task
    policy: Policy
    bundle: Bundle
    """The one run that decides."""
    generators: tuple[str, ...]
    num_samples: int | None
    seed: int
    return_candidates: bool
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Changed settings of ``records.Sampling``."""
    earlier_turns: tuple[Message, ...] = ()
    """Earlier turns of the chat and the client's system messages, sent to every generator."""
    ignored_messages: int = 0
    """Number of messages after the user's last one."""
    response_format: str | None = None
    """OpenAI's object as JSON, for generators that support it."""
    received: float | None = None
    """``time.perf_counter()`` at arrival, the start of the deadline. Default: the start of work."""
    account: Account | None = None
    """The caller's spending limits. Default: no limit."""

    @property
    def scored_prompt(self) -> str:
        """The problem as scored by the ensemble, after the earlier turns if there are any: a follow-up means nothing
        alone."""
        turns = [f"{said['role']}: {said['content']}" for said in self.earlier_turns if said["role"] != "system"]
        return "\n\n".join([*turns, f"user: {self.problem.prompt}"]) if turns else self.problem.prompt

    def worst_cost(self, request: GenerationRequest) -> float:
        """Worst cost of a request in US dollars; infinite without prices."""
        config = next(config for config in self.bundle.generator_configs() if config.name == request.generator)
        cost = worst_cost(config, request)
        return math.inf if cost is None else cost

    def requests(self, pass_index: int, messages: tuple[Message, ...] | None) -> list[GenerationRequest]:
        """Generation requests of a pass, equal to those of evaluation for this problem."""
        passes = PassRequests(
            recipe=self.bundle.recipe,
            task=self.task,
            generators=self.generators,
            num_samples=self.num_samples,
            num_regenerate=self.policy.num_regenerate,
            fresh_share=self.policy.fresh_share,
            seed=self.seed,
            sampling_changes=dict(self.sampling),
        )
        made = passes.first(self.problem) if messages is None else passes.later(self.problem, pass_index, messages)
        if not self.earlier_turns and self.response_format is None:
            return made
        return [
            replace(
                request,
                messages=chat_for_generators(request.messages, self.earlier_turns),
                response_format=self.response_format,
            )
            for request in made
        ]


def request_context(
    bundle: Bundle,
    overrides: Overrides,
    *,
    task_name: str | None,
    problem: str | ProblemBody,
    conversation: Conversation | None = None,
    account: Account | None = None,
    **facts: Any,
) -> RequestContext:
    """Validate a request. ``facts`` are further fields of the context. Raises ServiceError for the first fault."""
    bundle, task, read = read_problem(bundle, task_name, problem)
    context = () if conversation is None else conversation.context
    if (size := sum(len(message["content"]) for message in context)) > bundle.max_problem_chars:
        message = f"the earlier messages have {size} characters; at most {bundle.max_problem_chars} are accepted"
        raise ServiceError(message, 413, "context_too_long", "messages")
    policy = policy_for(bundle, overrides)
    for name in overrides.generators or ():
        if name not in bundle.generators:
            message = f"generator {name!r} is not served here; served: {', '.join(bundle.generators)}"
            raise ServiceError(message, 400, "unknown_generator", "generators")
    generators = tuple(name for name in bundle.generators if name in (overrides.generators or bundle.generators))
    limits_money = policy.max_usd is not None or (account is not None and account.limits_money)
    fault = no_prices(config for config in bundle.generator_configs() if config.name in generators)
    if limits_money and fault is not None:
        raise ServiceError(fault, 400, "no_prices", "max_usd")
    return RequestContext(
        problem=read,
        task=task,
        policy=policy,
        bundle=bundle,
        generators=generators,
        num_samples=overrides.num_samples,
        seed=bundle.recipe.seed if overrides.seed is None else overrides.seed,
        return_candidates=overrides.return_candidates,
        earlier_turns=context,
        ignored_messages=0 if conversation is None else conversation.num_ignored,
        account=account,
        **facts,
    )


def run_of(bundle: Bundle, task_name: str | None) -> Bundle:
    """The run of a task, alone; by default the only one. Raises ServiceError 404 for an unknown task, 400 if several
    are served and none is named."""
    if task_name is None and len(bundle.tasks) > 1:
        message = f"several tasks are served here; name one of {', '.join(bundle.tasks)} in 'task'"
        raise ServiceError(message, 400, "missing_task", "task")
    name = task_name or bundle.tasks[0]
    if name not in bundle.tasks:
        message = f"task {name!r} is not served here; served: {', '.join(bundle.tasks)}"
        raise ServiceError(message, 404, "unknown_task", "task")
    return bundle.of(name).alone


def read_problem(bundle: Bundle, task_name: str | None, problem: str | ProblemBody) -> tuple[Bundle, Task, Problem]:
    """The run of a task, the task, and the problem that it reads. Raises ServiceError 413 for a text that is too long,
    422 for one that the task cannot parse; see also ``run_of``."""
    bundle = run_of(bundle, task_name)
    text = problem if isinstance(problem, str) else problem.prompt
    if not text.strip():
        raise ServiceError("the problem is empty", 400, "missing_text", "problem")
    if len(text) > bundle.max_problem_chars:
        message = f"the problem has {len(text)} characters; at most {bundle.max_problem_chars} are accepted"
        raise ServiceError(message, 413, "problem_too_long", "problem")
    task = bundle.task
    try:
        read = _problem(task, problem)
    except NOT_A_PROBLEM as error:
        words = str(error) if isinstance(error, RaydebmError) else f"its data does not fit the task ({error!r})"
        message = f"the text is not a problem of task {task.name}: {words}"
        raise ServiceError(message, 422, "not_a_problem", "problem") from error
    return bundle, task, read


def _problem(task: Task, problem: str | ProblemBody) -> Problem:
    if isinstance(problem, str):
        return task.problem_from_text(problem)
    if problem.data is None:
        read = task.problem_from_text(problem.prompt)
        return replace(read, problem_id=problem.problem_id or read.problem_id, kind=problem.kind or read.kind)
    made = Problem(
        task=task.name,
        problem_id=problem.problem_id or content_id(task.name, problem.prompt, problem.data),
        prompt=problem.prompt,
        data=problem.data,
        difficulty=problem.difficulty,
        kind=problem.kind,
    )
    task.messages(made)  # raises if the data lacks a field that the task needs
    task.parse(made, "")
    return made


def policy_for(bundle: Bundle, overrides: Overrides) -> Policy:
    """The request's policy, within the operator's ceilings. Raises ServiceError 400 for invalid settings."""
    profile = bundle.profiles.get(overrides.policy or "", Overrides())
    try:
        operators = bundle.policy.changed(profile.policy_changes())
        policy = operators.changed(overrides.policy_changes())
    except ConfigError as error:
        raise ServiceError(f"overrides: {error}", 400, "bad_override") from error
    if overrides.num_samples != profile.num_samples:  # the operator's own count is not the client's error
        check_count("num_samples", overrides.num_samples, profile.num_samples or bundle.max_samples)
    return bundle.served(policy, operators=operators)


# ---- the backend and the metrics ------------------------------------------------------------------------------------


class Backend(Protocol):
    """The parts behind the service: deployments, or plain objects in tests. Each call takes a list, because a call to
    another replica costs milliseconds, and returns results in the list's order."""

    async def generate(
        self, requests: Sequence[GenerationRequest], on_candidate: Arrived, *, may_repeat: bool
    ) -> list[Candidate]:
        """One candidate per request; failed ones have ``error``. If ``may_repeat`` is true, a request that may already
        be billed can be sent again."""
        ...

    async def check(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]:
        """One report per candidate from the task's gold-free checks."""
        ...

    async def score(self, texts: Sequence[TextToScore]) -> list[Energies | None]:
        """Energies per text; None for a text that could not be scored."""
        ...

    async def baseline_scores(self, texts: Sequence[TextToScore]) -> list[Mapping[str, float]]:
        """Scores by name per text, from the baselines that are evidence."""
        ...

    def serving(self, bundle: Bundle) -> "Backend":
        """The same backend for another run: its generators, checks and adapters."""
        ...

    async def status(self) -> dict[str, Any]:
        """Loaded models and state of each part. Raises ServiceError if one is not available."""
        ...


class Meter:
    """Receiver of metrics by name, with their labels as keywords. This one counts nothing."""

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter."""

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add a value to a histogram."""

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""


# ---- one request ----------------------------------------------------------------------------------------------------


@dataclass
class Activity(Observer):
    """Record of one request's work, for its answer; the loop's observer (``decision.sampling.one_pass.Observer``)."""

    sent: list[GenerationRequest] = field(default_factory=list)
    cancelled: list[GenerationRequest] = field(default_factory=list)
    """Candidates cancelled in flight because the others settled the pass. They may have been billed."""
    over_budget: list[GenerationRequest] = field(default_factory=list)
    """Candidates not requested because ``max_usd`` or a daily ceiling might not have covered them."""
    received: list[Candidate] = field(default_factory=list)
    """All candidates in order of arrival, including those of an interrupted pass."""
    has_all_evidence: bool = True
    """False if the baselines that are evidence failed."""
    judged: list[ScoredCandidate] = field(default_factory=list)
    """Candidates with an answer that were checked and scored."""
    beliefs: Sequence[Belief] = ()
    """Beliefs about the answers of all passes so far, the selected one first; empty without a posterior."""
    stages_ms: dict[str, float] = field(default_factory=dict)
    ceilings: list[CeilingStatus] = field(default_factory=list)
    """Remainder of the daily ceilings after the last pass."""

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Trace the block, and add its time to the stage."""
        started = time.perf_counter()
        try:
            with tracing.span(stage):
                yield
        finally:
            elapsed = 1000 * (time.perf_counter() - started)
            self.stages_ms[stage] = round(self.stages_ms.get(stage, 0.0) + elapsed, 3)

    def planned(self, pass_index: int, plan: Affordable, feedback: str | None) -> None:
        """Record the candidates left out of a pass that is about to start."""
        self.over_budget.extend(plan.over_budget)

    def arrived(self, candidate: Candidate, done: int, total: int) -> None:
        """Record a candidate, which may have failed, as number ``done`` of its pass."""
        self.received.append(candidate)

    def scored(self, scored: ScoredCandidate) -> None:
        self.judged.append(scored)

    def decided(self, record: PassRecord, reason: str, beliefs: Sequence[Belief]) -> None:
        self.beliefs = beliefs

    def check_parts(self) -> None:
        """Raise LimitReachedError if no candidate so far could be judged, so that more would only cost more."""
        if (fault := fault_of(self.judged)) is not None:
            raise LimitReachedError(str(fault))


def fault_of(judged: Sequence[ScoredCandidate]) -> ServiceError | None:
    """Error to raise if no candidate with a text could be checked and scored, else None.

    Such candidates are not known to be wrong, so an abstention would be misleading.
    """
    reasons = [scored.report.error or (NO_ENERGY if scored.energies is None else None) for scored in judged]
    if not reasons or None in reasons:
        return None
    code = "check_failed" if judged[0].report.error is not None else "scoring_failed"
    return ServiceError(f"no candidate could be checked and scored: {reasons[0]}", 503, code, retry=False)


class Judges:
    """Checks, energies and baseline scores of one request's candidates: the loop's checker, scorer and baselines.

    Equal texts are read once, so that they get equal energies regardless of their batches.
    """

    def __init__(
        self, backend: Backend, activity: Activity, *, prompt: str | None = None, reasoning: Reasoning = "answer"
    ) -> None:
        """``prompt`` is the problem as scored, with the earlier turns of a chat; by default the problem's own."""
        self._backend, self._activity, self._prompt, self._reasoning = backend, activity, prompt, reasoning
        self._energies: dict[str, Energies | None] = {}
        self._scores: dict[str, Mapping[str, float]] = {}

    async def check(self, problem: Problem, candidates: Sequence[Candidate]) -> list[ConstraintReport]:
        """One report per candidate, in order."""
        with self._activity.timed("check"):
            return await self._backend.check(problem, candidates)

    async def score(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Energies | None]:
        """Energies per candidate, in order; None for one that could not be scored."""
        candidates = [candidate.as_scored(self._reasoning) for candidate in candidates]
        found = await self._read("score", self._backend.score, self._energies, problem, candidates)
        return [
            None if energies is None else replace(energies, candidate_id=candidate.candidate_id)
            for candidate, energies in zip(candidates, found, strict=True)
        ]

    async def scores(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Mapping[str, float]]:
        """Baseline scores by name per candidate, in order. If the baselines fail, the scores are empty, and the request
        is decided without this evidence and without its guarantee."""
        try:
            return await self._read("baselines", self._backend.baseline_scores, self._scores, problem, candidates)
        except Exception as error:
            self._activity.has_all_evidence = False
            is_ours = isinstance(error, RaydebmError)
            facts = {"reason": str(error) if is_ours else type(error).__name__}
            log.error("baselines failed", exc_info=not is_ours, extra={"facts": facts})
            for candidate in candidates:
                self._scores.setdefault(candidate.text or "", {})
            return [self._scores[candidate.text or ""] for candidate in candidates]

    async def _read(
        self,
        stage: str,
        call: Callable[[list[TextToScore]], Awaitable[list[T]]],
        known: dict[str, T],
        problem: Problem,
        candidates: Sequence[Candidate],
    ) -> list[T]:
        prompt = problem.prompt if self._prompt is None else self._prompt
        wanted = {candidate.text or "": candidate.candidate_id for candidate in candidates}
        texts = [TextToScore(name, prompt, text) for text, name in wanted.items() if text not in known]
        if texts:
            with self._activity.timed(stage):
                results = await call(texts)
            if len(results) != len(texts):
                raise ScoringError(f"the scorer returned {len(results)} results for {len(texts)} texts; restart it")
            known.update(zip([text.text for text in texts], results, strict=True))
        return [known[candidate.text or ""] for candidate in candidates]


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
        """Sample as much of a pass as the budget, the money and the daily ceilings allow (see ``CandidateSource``).
        Raises LimitReachedError if no candidate can be paid for."""
        activity = self.activity
        if pass_index > 1:
            activity.check_parts()
        account, plan, hold = self.context.account, self.plan(self.context.requests(pass_index, messages)), None
        if account is not None and plan.requests:
            plan, hold = await account.reserved(plan, self.context.worst_cost)
        found: dict[str, Candidate] = {}
        sent: list[GenerationRequest] = []

        def take(candidate: Candidate) -> None:
            if candidate.candidate_id in found:
                return
            limit, size = self.context.bundle.max_candidate_chars, len(candidate.text or "")
            if size > limit:  # it would cost memory in every later part
                error = f"the text has {size} characters; at most {limit} are taken"
                candidate = replace(candidate, text=None, error=error)
            found[candidate.candidate_id] = candidate
            activity.arrived(
                candidate, len(found), len(plan.requests)
            )  # at once: it was paid for even if the pass fails
            arrived(candidate)

        async def sample(requests: Sequence[GenerationRequest]) -> None:
            if sent:
                activity.check_parts()
            sent.extend(requests)
            activity.sent.extend(requests)
            with activity.timed("generate"):
                await self._send(requests, take, found)

        try:
            activity.planned(pass_index, plan, None if messages is None else messages[-1]["content"])
            await (sample(plan.requests) if waves is None else waves.run(plan.requests, sample))
        except (RaydebmError, OSError) as error:
            if not found:
                raise
            for request in sent:  # arrived candidates were paid for, and can be decided on
                take(unanswered(request, str(error)))
        finally:
            if waves is not None:
                activity.cancelled.extend(request for request in sent if request.candidate_id in waves.cancelled)
            await self._settle(hold, sent)
        return [found[request.candidate_id] for request in plan.requests if request.candidate_id in found]

    def plan(self, requests: Sequence[GenerationRequest]) -> Affordable:
        """The affordable part of a pass. Raises LimitReachedError if the remaining money pays for none of it."""
        policy, activity = self.context.policy, self.activity
        num_sent = len(activity.sent) - len(activity.cancelled)
        most = None if policy.budget is None else policy.budget - num_sent
        if policy.max_usd is None:
            return affordable(requests, most=most)
        worst = self.context.worst_cost
        left_usd = max(0.0, policy.max_usd - spent(activity.sent, activity.received, worst).usd)
        plan = affordable(requests, most=most, left_usd=left_usd, worst=worst)
        if not plan.requests:
            activity.over_budget.extend(plan.over_budget)
            cheapest_usd = min(map(worst, plan.over_budget), default=math.inf)
            raise LimitReachedError(
                f"of max_usd {policy.max_usd:g} at least {left_usd:.3g} US dollars are left, and the "
                f"cheapest candidate may cost {cheapest_usd:.3g}"
            )
        return plan

    async def _settle(self, hold: Hold | None, sent: Sequence[GenerationRequest]) -> None:
        account = self.context.account
        if account is None:
            return
        try:
            if hold is not None:
                await account.settle(hold, spent(sent, self.activity.received, account.known(self.context.worst_cost)))
            self.activity.ceilings = await account.status()
        except ResourceError as error:  # the candidates were paid for; the hold still counts as spent
            log.error("spending was not settled", extra={"facts": {"reason": str(error)}})

    async def _send(self, requests: Sequence[GenerationRequest], take: Arrived, found: Mapping[str, Candidate]) -> None:
        """Sample all candidates until the deadline, and add a late one for each missing candidate."""
        account, until_s = self.context.account, None if self.deadline is None else self.deadline.sample_until_s
        # A request that is sent again may be billed twice.
        may_repeat = self.context.policy.max_usd is None and not (account is not None and account.limits_money)
        if until_s is None or now_s() < until_s:
            try:
                async with asyncio.timeout_at(until_s) as time_is_up:
                    for candidate in await self.backend.generate(requests, take, may_repeat=may_repeat):
                        take(candidate)
            except TimeoutError:
                if not time_is_up.expired():
                    raise
        if self.deadline is not None:
            for request in requests:
                if request.candidate_id not in found:
                    take(unanswered(request, self.deadline.not_sampled(), failure=FailureKind.LATE))


# ---- the result -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorUse:
    """Counts of one generator's requests, and of those without a candidate by reason."""

    name: str
    asked: int
    failed: int
    """Requests without a usable text, including late ones."""
    late: int
    """Requests without a candidate, or with an unscored one, at ``deadline_ms``."""
    over_budget: int
    """Candidates not requested because each might have exceeded the rest of ``max_usd`` or of a daily ceiling."""
    cancelled: int
    """Requests cancelled in flight because the others settled the pass."""
    error: str | None
    """First error of the failed requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageResult:
    """One decided request."""

    context: RequestContext
    record: DecisionRecord
    summary: DecisionSummary
    activity: Activity
    is_stored: bool = False
    """True if the record goes to the store."""
    suspended: str | None = None
    """Reason why the policy's guarantee is suspended. Default: not suspended."""

    @property
    def outcome(self) -> Outcome:
        """Outcome of the loop."""
        return self.record.outcome

    @property
    def beliefs(self) -> Sequence[Belief]:
        """Beliefs about the distinct answers, the selected one first; empty without a posterior or a selection."""
        return () if self.outcome.best is None else self.activity.beliefs

    @property
    def reason(self) -> str:
        """Reason for the decision, with the likely cause if every text was cut before its answer."""
        outcome = self.outcome
        written = [scored.candidate for scored in outcome.pool if scored.candidate.text is not None]
        if outcome.best is not None or not written or any(each.finish_reason != "length" for each in written):
            return outcome.reason
        return f"{outcome.reason}; all {len(written)} texts were cut at max_tokens, so ask for more tokens"

    @property
    def answer(self) -> str | None:
        """The accepted answer in the task's canonical text; None after an abstention."""
        best = self.outcome.best
        return None if best is None or self.outcome.decision is not Decision.ACCEPT else best.report.answer

    @property
    def cancelled_usd(self) -> float | None:
        """Upper bound on the cost of cancelled requests; None if there are none or a price is unknown."""
        cancelled = self.activity.cancelled
        return finite_or_none(math.fsum(map(self.context.worst_cost, cancelled))) if cancelled else None

    @property
    def generators(self) -> list[GeneratorUse]:
        """Counts of every generator that was asked or could not be afforded. Candidates of an interrupted pass count as
        failed."""
        activity = self.activity
        sent, over_budget, cancelled = (
            Counter(request.generator for request in requests)
            for requests in (activity.sent, activity.over_budget, activity.cancelled)
        )
        pool = [each.candidate for each in self.outcome.pool]
        num_late = Counter(candidate.generator for candidate in pool if is_late(candidate))
        written = Counter(candidate.generator for candidate in pool if candidate.text is not None)
        errors = {name: redact(error) for name, error in _first_errors([*activity.received, *pool]).items()}
        return [
            GeneratorUse(
                name=name,
                asked=sent[name],
                failed=sent[name] - cancelled[name] - written[name],
                late=num_late[name],
                over_budget=over_budget[name],
                cancelled=cancelled[name],
                error=errors.get(name),
            )
            for name in dict.fromkeys([*sent, *over_budget])
        ]

    @property
    def facts(self) -> dict[str, Any]:
        """Log facts: numbers and names, without the problem or the answer."""
        stops = stop_totals([each.stop for each in self.outcome.passes])
        uses = self.generators
        numbers = {"num_passes", "energy", "sigma", "penalty", "cost_usd", "latency_ms", "confidence"}
        return {
            **self.summary.model_dump(include={"task", "problem_id", "decision", *numbers}),
            **{name: stops.get(name) for name in ("stop_reason", "num_cancelled", "tokens_saved")},
            "stages_ms": self.activity.stages_ms,
            "candidates": sum(use.asked for use in uses),
            **{name: sum(getattr(use, name) for use in uses) for name in ("failed", "late", "over_budget")},
            "policy": self.record.versions.get("policy"),
        }


def _first_errors(candidates: Iterable[Candidate]) -> dict[str, str]:
    errors: dict[str, str] = {}
    for candidate in candidates:
        if candidate.error is not None:
            errors.setdefault(candidate.generator, candidate.error)
    return errors


def finite_or_none(value: float) -> float | None:
    """The value, or None if it is infinite, which JSON cannot express."""
    return value if math.isfinite(value) else None


def stop_totals(stops: Iterable[PassStop | None]) -> dict[str, Any]:
    """Sum of the early stops of all passes and their savings; empty without waves."""
    known = [stop for stop in stops if stop is not None]
    if not known:
        return {}
    tokens = [stop.tokens_saved for stop in known if stop.tokens_saved is not None]
    num_planned = sum(stop.num_planned for stop in known)
    return {
        "stop_reason": known[-1].reason,
        "stop_words": known[-1].words,
        "num_planned": num_planned,
        "num_samples": sum(stop.num_samples for stop in known),
        "num_cancelled": sum(stop.num_cancelled for stop in known),
        "tokens_saved": sum(tokens) if tokens else None,
        "saved_frac": sum(stop.num_saved for stop in known) / num_planned if num_planned else 0.0,
    }


def decided_under(context: RequestContext, outcome: Outcome, activity: Activity) -> Policy:
    """The request's policy, with its guarantee void if it does not cover this decision."""
    policy, bundle = context.policy, context.bundle
    if policy.guarantee is None or not policy.guarantee["certified"]:
        return policy
    changed = [
        *(["generators"] if context.generators != bundle.generators else []),
        *(["num_samples"] if context.num_samples is not None else []),
        *(["response_format"] if context.response_format is not None else []),
        *sorted(context.sampling),
    ]
    checkpoint, fitted_on = bundle.versions["checkpoint"], policy.posterior and policy.posterior.checkpoint
    absent = [config.name for config in bundle.recipe.generators if config.name not in context.generators]
    most = 0
    if policy.budget not in (None, bundle.policy.budget):
        most = len(context.requests(1, None)) + (policy.max_passes - 1) * policy.num_regenerate
    reasons = {
        "the generators saw earlier turns of the chat": bool(context.earlier_turns),
        f"the request changed {', '.join(changed)}": bool(changed),
        f"checkpoint {checkpoint} scores, and the policy was calibrated with {fitted_on}": (
            bool(fitted_on) and fitted_on != checkpoint
        ),
        f"the service does not ask {', '.join(absent)}, which calibration did": bool(absent),
        f"a ceiling of the service allows {policy.budget} candidates, and all passes may sample {most}": (
            policy.budget is not None and policy.budget < most
        ),
        "a limit of money left candidates out": bool(activity.over_budget),
        "the deadline left candidates out": any(is_late(scored.candidate) for scored in outcome.pool),
        "a limit kept a further pass from being sampled": any(
            record.pass_index > 1 and record.num_requested == 0 for record in outcome.passes
        ),
        "baselines that are evidence did not work": not activity.has_all_evidence,
    }
    reason = next((words for words, holds in reasons.items() if holds), None)
    return policy if reason is None else policy.without_guarantee(reason)


# ---- the service ----------------------------------------------------------------------------------------------------


def internal_error(request_id: str) -> ServiceError:
    """Answer to an unforeseen exception, without its traceback."""
    return ServiceError(f"internal error; the log has it under request id {request_id}", 500, "internal")


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

    async def triage(self, context: RequestContext, activity: Activity | None = None) -> TriageResult:
        """Run the loop for one request, whose work the activity records.

        Raises ServiceError without a basis for a decision: 503 when no generator wrote anything, or nothing that was
        written could be checked and scored; 504 when the deadline left out every candidate, or at least half of them
        and the others do not suffice for an answer; 400 when ``max_usd`` pays for no candidate, 429 when the day's
        ceilings do not. Once anything was paid, every failure is a ServiceError without ``retry``.
        """
        activity, task = activity or Activity(), context.problem.task
        with tracing.span("triage", {"raydebm.task": task}) as span:
            try:
                result = await self._triage(context, activity)
            except Exception as error:
                failure = (
                    as_service_error(error)
                    if isinstance(error, RaydebmError)
                    else ServiceError(repr(error), 500, "internal")
                )
                # Counted here and not in the middleware, because a failed stream has status 200.
                self.meter.count("failures", task=task, status=str(failure.status), code=failure.code)
                facts = {"task": task, "status": failure.status, "code": failure.code, "reason": str(failure)}
                level = logging.WARNING if failure.status >= 500 else logging.INFO
                log.log(level, "no decision", extra={"facts": facts})
                if not any(each.cost_usd or each.prompt_tokens or each.completion_tokens for each in activity.received):
                    raise
                if not isinstance(error, RaydebmError):
                    log.exception("request %s failed", context.request_id)
                    failure = internal_error(context.request_id)
                # Resending it would cost as much again.
                raise ServiceError(str(failure), failure.status, failure.code, failure.param, retry=False) from error
            told = result.facts
            names = ("decision", "num_passes", "energy", "sigma", "penalty", "cost_usd", "policy")
            span.set(
                {
                    **{f"raydebm.{name}": told[name] for name in names},
                    "raydebm.num_candidates": told["candidates"],
                    "raydebm.num_failed": told["failed"],
                    "raydebm.checkpoint": result.record.versions.get("checkpoint"),
                }
            )
        return result

    async def _triage(self, context: RequestContext, activity: Activity) -> TriageResult:
        started = time.perf_counter()
        try:
            outcome = await self._solve(context, activity, waited_s=started - (context.received or started))
        finally:  # also for requests that fail or are abandoned
            self._count_candidates(activity.received)
            for name, error in _first_errors(activity.received).items():
                log.warning("generator failed", extra={"facts": {"generator": name, "reason": error}})
            for error in dict.fromkeys(each.report.error for each in activity.judged if each.report.error is not None):
                log.warning("check failed", extra={"facts": {"reason": error}})
        _check_decidable(outcome, activity)
        now, in_pool = datetime.now(UTC), {scored.candidate.candidate_id for scored in outcome.pool}
        asked = {
            "generators": list(context.generators),
            "num_samples": context.num_samples,
            "sampling": dict(context.sampling),
            "context": [dict(message) for message in context.earlier_turns],
            "response_format": context.response_format,
        }
        record = DecisionRecord(
            record_id=new_record_id(now),
            time=now,
            request_id=context.request_id,
            outcome=outcome,
            policy=decided_under(context, outcome, activity),
            seed=context.seed,
            scored_prompt=None if context.scored_prompt == context.problem.prompt else context.scored_prompt,
            request={name: value for name, value in asked.items() if value not in (None, [], {})},
            versions=context.bundle.versions,
            latency_ms=round(1000 * (time.perf_counter() - started), 3),
            stages_ms=dict(activity.stages_ms),
            lost=tuple(candidate for candidate in activity.received if candidate.candidate_id not in in_pool),
        )
        summary = summary_of(record)
        result = TriageResult(
            context=context,
            record=record,
            summary=summary,
            activity=activity,
            is_stored=self.records is not None and self.records.put(record),
            suspended=None if self.claims is None else self.claims.suspension(summary.policy_id),
        )
        self.meter.count("decisions", task=summary.task, decision=summary.decision, generator=summary.generator or "")
        if summary.sigma is not None:
            self.meter.observe("sigma", summary.sigma, task=summary.task)
        log.info("decision", extra={"facts": result.facts})
        return result

    def _count_candidates(self, candidates: Sequence[Candidate]) -> None:
        count = self.meter.count
        for each in candidates:
            count("candidates", generator=each.generator, outcome="failed" if each.text is None else "written")
            for kind, tokens in (("prompt", each.prompt_tokens), ("completion", each.completion_tokens)):
                if tokens:
                    count("tokens", tokens, generator=each.generator, kind=kind)
            if each.cost_usd:
                count("cost_usd", each.cost_usd, generator=each.generator)

    async def _solve(self, context: RequestContext, activity: Activity, *, waited_s: float) -> Outcome:
        total_ms = context.policy.deadline_ms
        deadline = None if total_ms is None else Deadline.starting_now(total_ms, spent_s=waited_s)
        backend, bundle = self.backend.serving(context.bundle), context.bundle
        judges = Judges(backend, activity, prompt=context.scored_prompt, reasoning=bundle.reasoning)
        parts = Parts(
            task=context.task,
            source=Source(context, backend, activity, deadline),
            checker=judges,
            scorer=judges,
            baselines=judges if bundle.recipe.evidence else None,
            observer=activity,
            deadline=deadline,
        )
        try:
            return await solve(context.problem, parts=parts, policy=context.policy)
        except CeilingReachedError as error:
            message = f"no candidate can be paid for: {error}"
            raise ServiceError(message, 429, "insufficient_quota", retry=False) from error
        except LimitReachedError as error:
            raise ServiceError(f"no candidate can be paid for: {error}", 400, "over_budget", "max_usd") from error


def _check_decidable(outcome: Outcome, activity: Activity) -> None:
    """Raise ServiceError if no text was written, came in time, or could be judged: an abstention would say that the
    answers cannot be trusted."""
    num_late = sum(is_late(scored.candidate) for scored in outcome.pool)
    written = [scored for scored in outcome.pool if scored.candidate.text is not None]
    if not written and num_late:
        raise ServiceError(f"no candidate was ready within the deadline: {outcome.reason}", 504, "deadline_exceeded")
    if not written:
        # Tokens spent on thinking alone, for example, are billed, and the same seeds would mostly end the same way.
        is_paid = any(candidate.cost_usd or candidate.completion_tokens for candidate in activity.received)
        raise ServiceError(f"no generator answered: {outcome.reason}", 503, "generation_failed", retry=not is_paid)
    if outcome.decision is Decision.ABSTAIN and 2 * num_late >= len(outcome.pool):
        raise ServiceError(f"too few candidates came in time: {outcome.reason}", 504, "deadline_exceeded")
    if (fault := fault_of(written)) is not None:
        raise fault
