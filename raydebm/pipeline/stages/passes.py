"""Later passes: replay the loop over recorded candidates, and sample missing requests in bulk until none are missing.

The stage makes those of the test split. Calibration asks for those of the validation split while it tries policies.
"""

import logging
from collections.abc import Callable, Sequence

from raydebm.config import RecordedGenerator
from raydebm.decision.policy import Policy
from raydebm.decision.replay import Recording, RequestsOf, replay
from raydebm.errors import GenerationError, PoolError
from raydebm.generators.account import SHARED_PASSES, JournalAccount
from raydebm.generators.recorded import PoolGenerator
from raydebm.pipeline.context import TEST, VALIDATION, Facts, StageContext
from raydebm.pipeline.pools import calibrated_policy, later_pass, later_passes, recorded_candidates
from raydebm.pipeline.stages.energies import score_candidates
from raydebm.pipeline.stages.problems import label_candidates
from raydebm.pipeline.stages.scores import ask_failed_again, score_later_pass
from raydebm.records import GenerationRequest, Message, Outcome, Problem
from raydebm.run.directory import SCORES_FOLDER

log = logging.getLogger(__name__)

PolicyOf = Policy | Callable[[Problem], Policy]
"""One policy, or the policy of each problem."""


def make_passes(context: StageContext) -> Facts:
    """Sample the later passes of the test split under the calibrated policy."""
    policy = calibrated_policy(context)
    if policy.max_passes == 1:
        return {}
    later = [each for outcome in outcomes_under(context, TEST, [policy])[0] for each in outcome.passes[1:]]
    return {"passes": len(later), "failed": sum(each.num_failed for each in later)}


def outcomes_of(context: StageContext) -> list[Outcome]:
    """The loop's outcome for every test problem under the calibrated policy, from recorded candidates alone.

    Raises:
        PoolError: a later pass was never sampled, because another policy took the place of the calibrated one.
    """
    (outcomes,), missing = _replayed(context, TEST, [calibrated_policy(context)])
    if missing:
        raise PoolError(
            f"{len(missing)} requests of later passes were never sent: the policy was replaced; remove "
            f"{context.run.uri('passes', 'manifest.json')} and run the recipe again"
        )
    return outcomes


def outcomes_under(context: StageContext, split: str, policies: Sequence[PolicyOf]) -> list[list[Outcome]]:
    """Outcomes of a split's problems under each policy, after sampling every later pass that a policy needs."""
    for later in later_passes(context, split):
        score_later_pass(context, later)
    while True:
        outcomes, missing = _replayed(context, split, policies)
        if not missing:
            _warn_of_other_feedback(context, split, [outcome for each in outcomes for outcome in each])
            return outcomes
        _sample(context, split, missing)


def _replayed(
    context: StageContext, split: str, policies: Sequence[PolicyOf]
) -> tuple[list[list[Outcome]], list[GenerationRequest]]:
    """Outcomes of a split's problems under each policy, from recorded candidates, and the requests that they lack."""
    recorded = Recording(context.task, recorded_candidates(context, split), requests_of=requests_of(context))
    problems = context.problems_of(split)
    return [replay(problems, recorded, policy=policy) for policy in policies], recorded.missing


def requests_of(context: StageContext) -> RequestsOf:
    """Function for the requests of a later pass. It raises GenerationError if a pool has no reply to the feedback."""
    config, pool = context.passes.regenerator, context.recorded_replies
    if pool is None or not isinstance(config, RecordedGenerator):
        return context.passes.later
    replies = PoolGenerator(config, problems=context.problems().values(), pool=pool)

    def recorded(problem: Problem, pass_index: int, messages: tuple[Message, ...]) -> Sequence[GenerationRequest]:
        requests = context.passes.later(problem, pass_index, messages)
        if not any(replies.has_answer(request) for request in requests):
            raise GenerationError(replies.missing_reason(requests[0]))
        return requests

    return recorded


def _warn_of_other_feedback(context: StageContext, split: str, outcomes: Sequence[Outcome]) -> None:
    if context.recorded_replies is None:
        return
    later = [outcome.passes[-1] for outcome in outcomes if len(outcome.passes) > 1]
    lost = sum(last.num_failed == last.num_requested for last in later)
    if lost:
        log.warning(
            "%s: %d of %d decisions with a later pass use only the first one, because the pool of %s has no reply to "
            "their feedback; use a generator that can sample",
            split,
            lost,
            len(later),
            context.passes.regenerator.name,
        )


def forget_failed_passes(context: StageContext) -> None:
    """Mark failed requests of later passes to be sent again. Answers are kept.

    The rows of failed requests are removed, so that calibration (validation) or the later passes of the test split are
    repeated and sample only them.
    """
    for split, stage in ((VALIDATION, "calibration"), (TEST, "passes")):
        for later in later_passes(context, split):
            candidates = context.run.candidates(later)
            answered = [candidate for candidate in candidates if candidate.text is not None]
            if len(answered) < len(candidates):
                context.run.reopen(stage)  # first: if the process is killed here, the next run still tries again
                context.run.write_candidates(answered, later)
            if ask_failed_again(context.recipe, context.run, f"{later}/{SCORES_FOLDER}"):
                context.run.reopen(stage)


def _sample(context: StageContext, split: str, requests: Sequence[GenerationRequest]) -> None:
    """Sample, label, check and score the missing requests of a replay."""
    from raydebm.pipeline.ray.generate import generate

    stage = later_pass(split, len(later_passes(context, split)) + 1)
    context.run.reopen(stage)
    bar = context.progress(f"later passes ({split})")
    account = None if context.payer is None else JournalAccount(context.payer, SHARED_PASSES)
    generate(requests, recipe=context.recipe, run=context.run, stage=stage, on_progress=bar, account=account)
    label_candidates(context, stage, stage)
    score_candidates(context, context.run.candidates(stage), stage)
    score_later_pass(context, stage)
    context.run.finish(stage, {"fingerprint": context.basis("energies"), "requests": len(requests)})
