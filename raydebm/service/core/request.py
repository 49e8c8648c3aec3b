"""Context of one request: its problem, policy and sampling.

Every client error is raised here, as a ServiceError that names the field.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import Field

from raydebm.decision.policy import Policy
from raydebm.errors import ConfigError, RaydebmError, ServiceError
from raydebm.generators.passes import PassRequests
from raydebm.identity import content_id
from raydebm.records import GenerationRequest, Message, Problem
from raydebm.service.settings import Body, Bundle, Data, Overrides, SamplingOverrides, Text
from raydebm.service.spending import Account, check_count, no_prices, worst_of
from raydebm.tasks.base import Task

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
"""OpenAI's chat roles -> roles for generators: few endpoints know ``developer``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A chat, with the message that is the problem."""

    problem: str
    """Text of the last user message."""
    context: tuple[Message, ...]
    """Earlier turns, in order, without those that have no text."""
    num_ignored: int
    """Number of later messages, such as the start of an answer, which are ignored: generators write whole answers."""


def weave(messages: Sequence[Message], context: Sequence[Message]) -> tuple[Message, ...]:
    """The chat for generators: the task's instructions, the client's system messages, the earlier turns, the rest."""
    first = next((index for index, said in enumerate(messages) if said["role"] != "system"), len(messages))
    systems = [said for said in context if said["role"] == "system"]
    turns = [said for said in context if said["role"] != "system"]
    return (*messages[:first], *systems, *turns, *messages[first:])


def transcript(context: Sequence[Message], prompt: str) -> str:
    """The problem as scored by the ensemble: the prompt, after the earlier turns if there are any."""
    turns = [f"{said['role']}: {said['content']}" for said in context if said["role"] != "system"]
    return "\n\n".join([*turns, f"user: {prompt}"]) if turns else prompt


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
    sampling: SamplingOverrides
    return_candidates: bool
    earlier_turns: tuple[Message, ...] = ()
    """Earlier turns of the chat and the client's system messages, sent to every generator."""
    ignored_messages: int = 0
    response_format: str | None = None
    """OpenAI's object as JSON, for generators that support it."""
    received: float | None = None
    """``time.perf_counter()`` at arrival, the start of the deadline. Default: the start of work."""
    account: Account | None = None
    """The caller's spending limits. Default: no limit."""

    @property
    def scored_prompt(self) -> str:
        """The problem as scored by the ensemble, with the earlier turns: a follow-up means nothing alone."""
        return transcript(self.earlier_turns, self.problem.prompt)

    def worst_cost(self, request: GenerationRequest) -> float:
        """Worst cost of a request in US dollars; infinite without prices."""
        return worst_of(self.bundle.generator_configs())(request)

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
            sampling_changes=self.sampling.model_dump(exclude_none=True),
        )
        made = passes.first(self.problem) if messages is None else passes.later(self.problem, pass_index, messages)
        if not self.earlier_turns and self.response_format is None:
            return made
        return [
            replace(request, messages=weave(request.messages, self.earlier_turns), response_format=self.response_format)
            for request in made
        ]


def request_context(
    bundle: Bundle,
    overrides: Overrides,
    *,
    request_id: str,
    task_name: str | None,
    problem: str | ProblemBody,
    sampling: SamplingOverrides | None = None,
    conversation: Conversation | None = None,
    account: Account | None = None,
    received: float | None = None,
) -> RequestContext:
    """Validate a request.

    Raises:
        ServiceError: an unknown task or generator, a text that is not a problem or is too long, bad overrides, or a
            limit on money with a generator that has no prices.
    """
    bundle, task, read = read_problem(bundle, task_name, problem)
    context = () if conversation is None else conversation.context
    if (size := sum(len(message["content"]) for message in context)) > bundle.max_problem_chars:
        message = f"the earlier messages have {size} characters; at most {bundle.max_problem_chars} are accepted"
        raise ServiceError(message, 413, "context_too_long", "messages")
    policy = policy_for(bundle, read.task, overrides)
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
        request_id=request_id,
        problem=read,
        task=task,
        policy=policy,
        bundle=bundle,
        generators=generators,
        num_samples=overrides.num_samples,
        seed=bundle.recipe.seed if overrides.seed is None else overrides.seed,
        sampling=sampling or SamplingOverrides(),
        return_candidates=overrides.return_candidates,
        earlier_turns=context,
        ignored_messages=0 if conversation is None else conversation.num_ignored,
        account=account,
        received=received,
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
    """The run of a task, the task, and the problem that it reads.

    Raises:
        ServiceError: see ``run_of``; 413 for a text that is too long, 422 for one that the task cannot parse.
    """
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
        words = str(error) if isinstance(error, RaydebmError) else f"its data is not what the task needs ({error!r})"
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


def policy_for(bundle: Bundle, task_name: str, overrides: Overrides) -> Policy:
    """The request's policy, within the operator's ceilings. Raises ServiceError 400 for invalid settings."""
    profile = bundle.profiles.get(overrides.policy or "", Overrides())
    try:
        operators = bundle.policies[task_name].changed(profile.policy_changes())
        policy = operators.changed(overrides.policy_changes())
    except ConfigError as error:
        raise ServiceError(f"overrides: {error}", 400, "bad_override") from error
    if overrides.num_samples != profile.num_samples:  # the operator's own count is lowered without an error
        check_count("num_samples", overrides.num_samples, profile.num_samples or bundle.max_samples)
    return bundle.served(policy, operators=operators)
