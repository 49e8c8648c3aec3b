"""What is to be run for one request: which problem, under which policy, sampled how.

Every mistake of the client ends here, as a ServiceError that names the field.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from raydebm.decision.policy import Policy
from raydebm.errors import ConfigError, RaydebmError, ServiceError
from raydebm.generators.passes import PassRequests
from raydebm.identity import content_id
from raydebm.records import GenerationRequest, Message, Problem
from raydebm.serving.settings.bundle import Bundle
from raydebm.serving.settings.overrides import Overrides, SamplingOverrides
from raydebm.serving.spending.affordability import no_prices, unpriced
from raydebm.serving.spending.ceilings import Account, check_count
from raydebm.tasks.base import Task

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
"""Roles of OpenAI's chats, and what generators are told: few endpoints know ``developer``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A chat, with the one message that is the problem."""

    problem: str
    """Text of the last user message."""
    context: tuple[Message, ...]
    """The turns before it, in their order; those without text are left out."""
    num_ignored: int
    """Messages after it, such as the start of an answer: generators write whole answers."""


def weave(messages: Sequence[Message], context: Sequence[Message]) -> tuple[Message, ...]:
    """The chat for generators: the task's instructions, the client's system messages, the earlier turns, the rest."""
    first = next((index for index, said in enumerate(messages) if said["role"] != "system"), len(messages))
    systems = [said for said in context if said["role"] == "system"]
    turns = [said for said in context if said["role"] != "system"]
    return (*messages[:first], *systems, *turns, *messages[first:])


def transcript(context: Sequence[Message], prompt: str) -> str:
    """The problem as the ensemble reads it; without earlier turns the prompt itself."""
    turns = [f"{said['role']}: {said['content']}" for said in context if said["role"] != "system"]
    return "\n\n".join([*turns, f"user: {prompt}"]) if turns else prompt


NO_PROBLEM = "not_a_problem"
"""Code of the error about a text that its task cannot read."""
NOT_A_PROBLEM = (RaydebmError, KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError)
"""What a task may raise about a text or about ``data`` that is no problem of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenProblem:
    """A problem whose structure the client already has, instead of a text to read it from."""

    prompt: str
    data: Mapping[str, Any] | None = None
    """The task's own fields, as in ``problems.parquet``. None: the task reads them from the prompt."""
    problem_id: str | None = None
    difficulty: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadProblem:
    """A problem with the run that decides about it."""

    bundle: Bundle
    task: Task
    problem: Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """One request, read and checked. Immutable, so that concurrent requests cannot touch each other."""

    request_id: str
    problem: Problem
    task: Task
    policy: Policy
    bundle: Bundle
    """The run that decides, alone."""
    generators: tuple[str, ...]
    num_samples: int | None
    seed: int
    sampling: SamplingOverrides
    return_candidates: bool
    earlier_turns: tuple[Message, ...] = ()
    """Earlier turns of the chat, and the client's own system messages: generators see them all."""
    ignored_messages: int = 0
    response_format: str | None = None
    """OpenAI's object in JSON, for the generators that take one."""
    received: float | None = None
    """``time.perf_counter()`` when the request arrived, from which its deadline counts; None: when work begins."""
    account: Account | None = None
    """What the caller may spend today; None: nothing is limited."""
    num_choices: int | None = None
    """Distinct answers that the client wants to see at most; None: the selected one."""

    @property
    def scored_prompt(self) -> str:
        """What the ensemble reads as the problem, with the earlier turns, for a follow-up means nothing alone."""
        return transcript(self.earlier_turns, self.problem.prompt)

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions that the answer carries; ``policy`` is the file of the policy that answers."""
        return self.bundle.versions

    def requests(self, pass_index: int, messages: tuple[Message, ...] | None) -> list[GenerationRequest]:
        """The generation requests of a pass, the same ones that evaluation makes for this problem."""
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
        made = self._made(passes, pass_index, messages)
        if not self.earlier_turns and self.response_format is None:
            return made
        return [
            replace(request, messages=weave(request.messages, self.earlier_turns), response_format=self.response_format)
            for request in made
        ]

    def _made(
        self, passes: PassRequests, pass_index: int, messages: tuple[Message, ...] | None
    ) -> list[GenerationRequest]:
        if messages is not None:
            return passes.later(self.problem, pass_index, messages)
        most = self.bundle.limits.request.num_samples
        return [request for request in passes.first(self.problem) if most is None or request.sample_index < most]


def request_context(
    bundle: Bundle,
    overrides: Overrides,
    *,
    request_id: str,
    task_name: str | None,
    problem: str | GivenProblem,
    sampling: SamplingOverrides | None = None,
    conversation: Conversation | None = None,
) -> RequestContext:
    """Check everything about a request.

    Raises:
        ServiceError: unknown task or generator, a text that is not a problem, one that is too long, bad overrides.
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
    """The same request on somebody's account.

    Args:
        context: the request.
        account: what the caller may spend; None: nothing is limited.

    Raises:
        ServiceError: 400, the account limits money, and a generator that would be asked has no prices.
    """
    if account is not None and account.limits_money:
        check_prices(context.bundle, context.generators)
    return replace(context, account=account)


def read_problem(bundle: Bundle, task_name: str | None, problem: str | GivenProblem) -> ReadProblem:
    """Read the problem by its task, with the run of that task.

    Args:
        bundle: the served runs.
        task_name: name of a served task. Default: the only one.
        problem: the text, or its structure.

    Raises:
        ServiceError: 404 for an unknown task, 400 for none where several are served, 413 for a text that is too long,
            422 for one that the task cannot read.
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
    """Raises ServiceError 413 for earlier turns that are too long."""
    size = sum(len(message["content"]) for message in context)
    if size > bundle.max_problem_chars:
        message = f"the earlier messages have {size} characters; at most {bundle.max_problem_chars} are accepted"
        raise ServiceError(message, 413, "context_too_long", "messages")


def _check_length(bundle: Bundle, problem: str | GivenProblem) -> None:
    text = problem if isinstance(problem, str) else problem.prompt
    if not text.strip():
        raise ServiceError("the problem is empty", 400, "missing_text", "problem")
    if len(text) > bundle.max_problem_chars:
        message = f"the problem has {len(text)} characters; at most {bundle.max_problem_chars} are accepted"
        raise ServiceError(message, 413, "problem_too_long", "problem")


def _problem(task: Task, problem: str | GivenProblem) -> Problem:
    if isinstance(problem, str):
        return task.problem_from_text(problem)
    if problem.data is None:
        read = task.problem_from_text(problem.prompt)
        return replace(read, problem_id=problem.problem_id or read.problem_id)
    made = Problem(
        task=task.name,
        problem_id=problem.problem_id or content_id(task.name, problem.prompt, problem.data),
        prompt=problem.prompt,
        data=problem.data,
        difficulty=problem.difficulty,
    )
    task.messages(made)  # raises when the data lacks what the task needs
    task.parse(made, "")
    return made


def policy_for(bundle: Bundle, task_name: str, overrides: Overrides) -> Policy:
    """The policy of a request, below the operator's ceilings.

    Args:
        bundle: has the operator's policies.
        task_name: of the problem.
        overrides: what the request changes.

    Raises:
        ServiceError: 400 for settings that are wrong.
    """
    profile = bundle.profiles.get(overrides.policy or "", Overrides())
    try:
        operators = bundle.policies[task_name].changed(profile.policy_changes())
        policy = operators.changed(overrides.policy_changes())
    except ConfigError as error:
        raise ServiceError(f"overrides: {error}", 400, "bad_override") from error
    if overrides.num_samples != profile.num_samples:  # the operator's own count is lowered, and no client's mistake
        most_samples = bundle.limits.request.num_samples or profile.num_samples or bundle.max_samples
        check_count("num_samples", overrides.num_samples, most_samples)
    return bundle.served(policy, operators=operators)


def check_prices(bundle: Bundle, generators: Sequence[str]) -> None:
    """Raises ServiceError 400 when nothing can bound the cost of one of these generators."""
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
