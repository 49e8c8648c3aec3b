"""A run's posterior and its policy: the run's tables in, the contents of ``decision.json`` out."""

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from raydebm.decision.calibration.policy_fit import LabelledProblems, PolicyFit, fit_policy
from raydebm.decision.calibration.policy_traces import trace
from raydebm.decision.calibration.walks import Walk, WalkOf
from raydebm.decision.evidence.fitting import LabelledPool, competition_of
from raydebm.decision.policy import Policy
from raydebm.errors import PoolError
from raydebm.evaluation.pools.pool import EvaluatedPool, RecordedPools, without_energies
from raydebm.evaluation.pools.stack import Stack
from raydebm.pairs import text_key
from raydebm.pipeline.context import TRAIN, VALIDATION, StageContext
from raydebm.pipeline.pools import evaluated_pools, recorded_pools
from raydebm.pipeline.stages.energies import adapters_out_of_bag
from raydebm.pipeline.stages.passes import complete, recorded_parts
from raydebm.records import Problem
from raydebm.run.ensemble_file import read_ref


def fit_run_policy(context: StageContext, base: Policy) -> tuple[PolicyFit | None, dict[str, Any]]:
    """Fit the posterior and its policy; also returns facts for the manifest.

    Returns None, with the reason in the facts, if fewer than two problems are labelled or there is nothing to learn.
    """
    pools = labelled_pools(evaluated_pools(context, VALIDATION)) + out_of_bag(context)
    recipe = context.recipe
    try:
        fit = fit_policy(
            LabelledProblems(
                pools=pools,
                task=recipe.task.name,
                outcome="violation" if has_violations(evaluated_pools(context, VALIDATION)) else "correct",
                competition=competition_of(context.task),
                checkpoint=read_ref(context.run.uri("scorer")).fingerprint,
            ),
            base=base,
            config=recipe.decision,
            profile=None if recipe.triage.profile == "auto" else recipe.triage.profile,
            walk=_walk_of(context, [pool.problem_id for pool in pools if pool.is_labelled])
            if base.max_passes > 1
            else None,
        )
    except PoolError as error:
        return None, {"rule": "paper", "reason": str(error)}
    return fit, fit.facts()


def has_violations(pools: Iterable[EvaluatedPool]) -> bool:
    """Whether any label has a violation score."""
    return any(not np.isnan(pool.violation).all() for pool in pools)


def labelled_pools(pools: Sequence[EvaluatedPool]) -> list[LabelledPool]:
    """Pools with the value of each candidate: 1 or 0, or 1 minus the violation score."""
    scored = has_violations(pools)
    return [
        LabelledPool(
            problem_id=pool.problem.problem_id,
            candidates=pool.candidates,
            worth=((1 - pool.violation) if scored else pool.correct)[: len(pool.candidates)],
            text_key=text_key(pool.problem.prompt),
        )
        for pool in pools
    ]


def out_of_bag(context: StageContext) -> list[LabelledPool]:
    """Training problems with the energies of adapters that did not train on them; may be empty."""
    return labelled_pools(_pools_out_of_bag(context))


def labelled_stack(context: StageContext, validation: Sequence[EvaluatedPool]) -> Stack:
    """The problems that the posterior learns from, without energies: training data of rules that use no energies, so
    that both see the same labels.

    Args:
        validation: pools of the validation split.
    """
    return Stack.of([without_energies(pool) for pool in [*validation, *_pools_out_of_bag(context)]])


def _pools_out_of_bag(context: StageContext) -> list[EvaluatedPool]:
    unseen = adapters_out_of_bag(context)
    if not unseen:
        return []
    return [pool for pool in evaluated_pools(context, TRAIN) if pool.problem.problem_id in unseen]


def _walk_of(context: StageContext, problem_ids: Sequence[str]) -> WalkOf:
    """Walk the problems through every pass, sampling missing passes."""
    problems = context.problems()

    def walk(policies: Sequence[Policy]) -> Walk:
        own: Mapping[str, Policy] = dict(zip(problem_ids, policies, strict=True))
        fallback = policies[0]

        def policy_of(problem: Problem) -> Policy:
            return own.get(problem.problem_id, fallback)

        complete(context, VALIDATION, [policy_of])
        pools = recorded_pools(context, VALIDATION)
        return _steps([problems[name] for name in problem_ids], own, pools, context)

    return walk


def _steps(problems: Sequence[Problem], own: Mapping[str, Policy], pools: RecordedPools, context: StageContext) -> Walk:
    parts, _ = recorded_parts(context, pools)

    async def run() -> list[Any]:
        return [
            await trace(problem, parts=parts, labels=pools.labels, policy=own[problem.problem_id])
            for problem in problems
        ]

    traces = asyncio.run(run())
    num_steps = next(iter(own.values())).max_passes
    walks = [[one.steps[min(index, len(one.steps) - 1)] for index in range(num_steps)] for one in traces]
    return Walk(
        confidence=np.array(
            [[-math.inf if step.confidence is None else step.confidence for step in steps] for steps in walks]
        ),
        worth=np.array([[step.worth for step in steps] for steps in walks]),
    )
