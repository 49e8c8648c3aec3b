"""Context of one request: its problem, policy and sampling.

Every client error is raised here, as a ServiceError that names the field.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import Field

from raydebm.decision.policy import Policy
from raydebm.errors import ConfigError, RaydebmError, ServiceError
from raydebm.generators.passes import PassRequests
from raydebm.identity import content_id
from raydebm.records import GenerationRequest, Message, Problem
from raydebm.service.settings.bundle import Bundle
from raydebm.service.settings.overrides import Body, Data, Overrides, SamplingOverrides, Text
from raydebm.service.spending import Account, check_count, no_prices, unpriced
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


NO_PROBLEM = "not_a_problem"
"""Error code for a text that its task cannot parse."""
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
class ReadProblem:
    """A parsed problem and its run."""

    bundle: Bundle
    task: Task
    problem: Problem


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
    num_choices: int | None = None
    """Maximum number of distinct answers in the response. Default: the selected one."""

    @property
    def scored_prompt(self) -> str:
        """The problem as scored by the ensemble, with the earlier turns: a follow-up means nothing alone."""
        return transcript(self.earlier_turns, self.problem.prompt)

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions in the response; ``policy`` is the policy file's name."""
        return self.bundle.versions

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
) -> RequestContext:
    """Validate a request.

    Raises:
        ServiceError: an unknown task or generator, a text that is not a problem or is too long, or bad overrides.
    """
    read = read_problem(bundle, task_name, problem)
    bundle = read.bundle
    context = () if conversation is None else conversation.context
    check_context(bundle, context)
    policy = policy_for(bundle, read.problem.task, overrides)
    generators = _generators(bundle, overrides.generators)
    if policy.max_usd is not None:
        check_prices(bundle, generators)
    return RequestContext(
        request_id=request_id,
        problem=read.problem,
        task=read.task,
        policy=policy,
        bundle=bundle,
        generators=generators,
        num_samples=overrides.num_samples,
        seed=bundle.recipe.seed if overrides.seed is None else overrides.seed,
        sampling=sampling or SamplingOverrides(),
        return_candidates=overrides.return_candidates,
        earlier_turns=context,
        ignored_messages=0 if conversation is None else conversation.num_ignored,
    )


def charged_to(context: RequestContext, account: Account | None) -> RequestContext:
    """The same request with an account to charge.

    Args:
        context: the request.
        account: the caller's spending limits. None for no limit.

    Raises:
        ServiceError: 400, the account limits money, and one of the generators has no prices.
    """
    if account is not None and account.limits_money:
        check_prices(context.bundle, context.generators)
    return replace(context, account=account)


def read_problem(bundle: Bundle, task_name: str | None, problem: str | ProblemBody) -> ReadProblem:
    """Parse the problem with its task, and find the run of that task.

    Args:
        bundle: the served runs.
        task_name: name of a served task. Default: the only one.
        problem: the text, or its structured form.

    Raises:
        ServiceError: 404 for an unknown task, 400 if several are served and none is named, 413 for a text that is too
            long, 422 for one that the task cannot parse.
    """
    if task_name is None and len(bundle.tasks) > 1:
        message = f"several tasks are served here; name one of {', '.join(bundle.tasks)} in 'task'"
        raise ServiceError(message, 400, "missing_task", "task")
    name = task_name or bundle.tasks[0]
    if name not in bundle.tasks:
        message = f"task {name!r} is not served here; served: {', '.join(bundle.tasks)}"
        raise ServiceError(message, 404, "unknown_task", "task")
    _check_length(bundle, problem)
    task = bundle.task(name)
    try:
        read = _problem(task, problem)
    except NOT_A_PROBLEM as error:
        words = str(error) if isinstance(error, RaydebmError) else f"its data is not what the task needs ({error!r})"
        message = f"the text is not a problem of task {name}: {words}"
        raise ServiceError(message, 422, NO_PROBLEM, "problem") from error
    return ReadProblem(bundle=bundle.of(name).alone, task=task, problem=read)


def check_context(bundle: Bundle, context: Sequence[Message]) -> None:
    """Raise ServiceError 413 for earlier turns that are too long."""
    size = sum(len(message["content"]) for message in context)
    if size > bundle.max_problem_chars:
        message = f"the earlier messages have {size} characters; at most {bundle.max_problem_chars} are accepted"
        raise ServiceError(message, 413, "context_too_long", "messages")


def _check_length(bundle: Bundle, problem: str | ProblemBody) -> None:
    text = problem if isinstance(problem, str) else problem.prompt
    if not text.strip():
        raise ServiceError("the problem is empty", 400, "missing_text", "problem")
    if len(text) > bundle.max_problem_chars:
        message = f"the problem has {len(text)} characters; at most {bundle.max_problem_chars} are accepted"
        raise ServiceError(message, 413, "problem_too_long", "problem")


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
    """The request's policy, within the operator's ceilings.

    Args:
        bundle: the operator's policies.
        task_name: task of the problem.
        overrides: changes by the request.

    Raises:
        ServiceError: 400 for invalid settings.
    """
    profile = bundle.profiles.get(overrides.policy or "", Overrides())
    try:
        operators = bundle.policies[task_name].changed(profile.policy_changes())
        policy = operators.changed(overrides.policy_changes())
    except ConfigError as error:
        raise ServiceError(f"overrides: {error}", 400, "bad_override") from error
    if overrides.num_samples != profile.num_samples:  # the operator's own count is lowered without an error
        check_count("num_samples", overrides.num_samples, profile.num_samples or bundle.max_samples)
    return bundle.served(policy, operators=operators)


def check_prices(bundle: Bundle, generators: Sequence[str]) -> None:
    """Raise ServiceError 400 if one of these generators has no prices, so that its cost is unbounded."""
    without = unpriced(config for config in bundle.generator_configs() if config.name in generators)
    if without:
        raise ServiceError(no_prices(without), 400, "no_prices", "max_usd")


def _generators(bundle: Bundle, wanted: list[str] | None) -> tuple[str, ...]:
    if wanted is None:
        return bundle.generators
    unknown = [name for name in wanted if name not in bundle.generators]
    if unknown:
        message = f"generator {unknown[0]!r} is not served here; served: {', '.join(bundle.generators)}"
        raise ServiceError(message, 400, "unknown_generator", "generators")
    return tuple(name for name in bundle.generators if name in wanted)
