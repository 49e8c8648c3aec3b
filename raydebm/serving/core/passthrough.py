"""Ordinary chat behind the service: what is no problem of a served task goes to one generator, as it is.

Its answer is neither checked nor scored: nothing is decided about it, and nothing promised. Limits, ceilings, cost and
storage are those of every request.
"""

from raydebm.decision.policy import LIMITS, Policy
from raydebm.decision.sampling.checks import unchecked
from raydebm.errors import ServiceError
from raydebm.identity import content_id
from raydebm.records import Candidate, Decision, Outcome, PassRecord, Problem, ScoredCandidate
from raydebm.serving.core.conversation import Conversation
from raydebm.serving.core.request import (
    NO_PROBLEM,
    RequestContext,
    check_context,
    check_prices,
    policy_for,
    read_problem,
)
from raydebm.serving.core.source import Source
from raydebm.serving.settings.bundle import Bundle
from raydebm.serving.settings.overrides import Overrides, SamplingOverrides

NAME = str(Decision.PASSTHROUGH)
"""What stands for the task in answers and records, and for the decision."""
UNCHECKED = "passed through as ordinary chat, so nothing was checked or scored"


def passthrough_context(
    bundle: Bundle,
    overrides: Overrides,
    *,
    refusal: ServiceError,
    conversation: Conversation,
    request_id: str,
    sampling: SamplingOverrides,
    seed: int | None = None,
) -> RequestContext:
    """What to run for a chat that the wanted task cannot read.

    Args:
        bundle: names the generator.
        overrides: of the request; only its limits, its seed and ``return_candidates`` count.
        refusal: why the chat is no problem.
        conversation: goes to the generator as it is.
        request_id: for the answer.
        sampling: the client's own.
        seed: the one that stands outside the overrides.

    Raises:
        ServiceError: the refusal, where chats are not passed through or another task can read this one; what
            ``make_ask`` refuses of limits and lengths.
    """
    if bundle.passthrough is None:
        raise ServiceError(f"{refusal}. {_hint(bundle)}", refusal.status, refusal.code, refusal.param)
    if _is_problem(bundle, conversation.problem):
        raise refusal
    check_context(bundle, conversation.context)
    limits = policy_for(bundle, bundle.tasks[0], overrides)
    if limits.max_usd is not None:
        check_prices(bundle, (bundle.passthrough,))
    prompt = conversation.problem
    return RequestContext(
        request_id=request_id,
        problem=Problem(task=NAME, problem_id=content_id(NAME, prompt), prompt=prompt),
        task=bundle.task(bundle.tasks[0]),  # only for the longest answer that it allows
        policy=Policy(max_passes=1, **{name: getattr(limits, name) for name in LIMITS}),
        bundle=bundle,
        generators=(bundle.passthrough,),
        num_samples=1,
        seed=next((value for value in (overrides.seed, seed) if value is not None), bundle.recipe.seed),
        sampling=sampling,
        return_candidates=overrides.return_candidates,
        fresh=overrides.fresh,
        earlier_turns=conversation.context,
        ignored_messages=conversation.num_ignored,
        passthrough=True,
    )


def _hint(bundle: Bundle) -> str:
    return (
        f"The service can send such chats to one generator: `raydebm serve --passthrough {bundle.generators[0]}`, or "
        "`passthrough` in the arguments of its application"
    )


def _is_problem(bundle: Bundle, text: str) -> bool:
    try:
        read_problem(bundle, None, text)
    except ServiceError as error:
        if error.code == NO_PROBLEM:
            return False
        raise
    return True


async def answered(context: RequestContext, source: Source) -> Outcome:
    """The generator's answer, with no decision about it.

    Raises:
        LimitReachedError: a limit forbids the request; nothing was sent.
        RaydebmError: the generators do not work.
    """
    (candidate,) = await source.generate(context.problem, pass_index=1, messages=None, arrived=lambda candidate: None)
    return _outcome(context, candidate)


def _outcome(context: RequestContext, candidate: Candidate) -> Outcome:
    scored = ScoredCandidate(candidate=candidate, report=unchecked(candidate.candidate_id, UNCHECKED), energies=None)
    is_written = candidate.text is not None
    record = PassRecord(
        pass_index=1,
        num_requested=1,
        num_failed=0 if is_written else 1,
        selected=candidate.candidate_id if is_written else None,
        sigma=None,
        penalty=None,
        decision=Decision.PASSTHROUGH,
    )
    return Outcome(
        problem=context.problem,
        decision=Decision.PASSTHROUGH,
        best=scored if is_written else None,
        passes=(record,),
        pool=(scored,),
        reason=_reason(context, candidate),
    )


def _reason(context: RequestContext, candidate: Candidate) -> str:
    if candidate.error is not None:
        return f"{candidate.generator} did not answer: {candidate.error}"
    tasks = ", ".join(context.bundle.tasks)
    return (
        f"the last message is no problem of a served task ({tasks}), so {candidate.generator} answered it as ordinary "
        "chat; nothing was checked and nothing is promised"
    )
