"""Later passes: the loop runs over what is recorded, and what it lacks is sampled in bulk until it lacks nothing."""

from collections.abc import Callable, Sequence

from raydebm.decision.policy import Policy
from raydebm.decision.replay import RecordedChecker, RecordedScorer, RecordedScores, ReplaySource, replay
from raydebm.generators.account import SHARED_PASSES, Account
from raydebm.pipeline.context import TEST, StageContext
from raydebm.pipeline.policies import evaluated_policy
from raydebm.pipeline.pools import later_pass, later_passes, recorded_pools
from raydebm.pipeline.scores import score_later_pass
from raydebm.pipeline.stages.energies import score_candidates
from raydebm.pipeline.stages.labels import label_candidates
from raydebm.records import GenerationRequest, Outcome, Problem


def outcomes_of(context: StageContext, split: str = TEST) -> list[Outcome]:
    """The loop's outcome for every problem of a split, under the policy that is evaluated."""
    return complete(context, split, [evaluated_policy(context)])[0]


def complete(
    context: StageContext, split: str, policies: Sequence[Policy | Callable[[Problem], Policy]]
) -> list[list[Outcome]]:
    """The outcomes of a split's problems under each policy; samples every later pass that one of them asks for."""
    problems = context.problems_of(split)
    while True:
        pools = recorded_pools(context, split)
        source = ReplaySource(pools.candidates, requests_of=context.passes.later)
        checker, scorer = RecordedChecker(pools.reports), RecordedScorer(pools.energies)
        baselines = RecordedScores(pools.scores) if context.recipe.evidence else None
        outcomes = [
            replay(
                problems,
                task=context.task,
                policy=policy,
                source=source,
                checker=checker,
                scorer=scorer,
                baselines=baselines,
            )
            for policy in policies
        ]
        if not source.missing:
            return outcomes
        _sample(context, split, source.missing)


def _sample(context: StageContext, split: str, requests: Sequence[GenerationRequest]) -> None:
    """Sample, label, check and score what a replay did not find."""
    from raydebm.distributed.generate import generate

    stage = later_pass(split, len(later_passes(context, split)) + 1)
    context.run.reopen(stage)
    bar = context.progress(f"pass 2 ({split})")
    account = None if context.payer is None else Account(context.payer, SHARED_PASSES)
    generate(requests, recipe=context.recipe, run=context.run, stage=stage, on_progress=bar, account=account)
    label_candidates(context, stage, stage)
    score_candidates(context, context.run.candidates(stage), stage)
    score_later_pass(context, stage)
    context.run.finish(stage, {"fingerprint": context.basis("energies"), "requests": len(requests)})
