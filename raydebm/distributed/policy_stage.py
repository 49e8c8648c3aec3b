"""Fitting a run's posterior and policy: the run's tables in, ``calibration/decision.json`` and the policy out."""

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from raydebm import pairs
from raydebm.decision.calibration import calibrate, trace
from raydebm.decision.drawing import Parts
from raydebm.decision.fitting import LabelledPool
from raydebm.decision.policy import Policy
from raydebm.decision.policy_fit import Walk, WalkOf, fit_policy, promise_rows, reliability_table
from raydebm.decision.replay import RecordedChecker, RecordedScorer, RecordedScores, ReplaySource
from raydebm.distributed.recorded import RecordedPools
from raydebm.errors import PoolError
from raydebm.evaluation.pools import EvaluatedPool
from raydebm.records import Problem
from raydebm.store import PAIRS

if TYPE_CHECKING:
    from raydebm.distributed.stages import Pipeline

TRAIN, VALIDATION = "train", "validation"


def calibrate_thresholds(pipeline: "Pipeline", default: Policy) -> tuple[Policy, dict[str, Any]]:
    """The policy with lambda and the thresholds on sigma that are best on the validation split, and the facts for its
    manifest; draws every later pass that some lambda asks for."""
    config = pipeline.recipe.calibration
    # The grid may ask for a later pass of any problem under any lambda, so all of them are drawn.
    lambdas = sorted({default.lambda_, *config.lambdas})
    pipeline.complete(
        VALIDATION, [default.replaced(lambda_=found, theta_sigma=0.0, theta_abstain=1e9) for found in lambdas]
    )
    pools, problems = pipeline.recorded(VALIDATION), pipeline.problems()
    result = calibrate(
        [problems[problem_id] for problem_id in pipeline.splits()[VALIDATION]],
        task=pipeline.passes.task,
        base=default,
        candidates=pools.candidates,
        reports=pools.reports,
        energies=pools.energies,
        labels=pools.labels,
        requests_of=pipeline.passes.later,
        lambdas=config.lambdas,
        num_thresholds=config.num_thresholds,
        max_abstain_frac=config.max_abstain_frac,
    )
    pipeline.run.write_json(result.to_json(), "calibration", "grid.json")
    return result.policy, result.facts()


def fit_run_policy(pipeline: "Pipeline", base: Policy) -> tuple[Policy, dict[str, Any]]:
    """The policy that decides by a fitted posterior, and what to keep in the manifest.

    Without two labelled problems, or with nothing to learn from them, the paper's rule stays, and the facts say so.
    """
    pools = labelled_pools(pipeline.evaluated_pools(VALIDATION))
    if pipeline.recipe.learns_out_of_bag:
        pools += out_of_bag(pipeline)
    recipe = pipeline.recipe
    try:
        found = fit_policy(
            pools,
            base=base,
            config=recipe.decision,
            task=recipe.task.name,
            outcome="violation" if has_violations(pipeline.evaluated_pools(VALIDATION)) else "correct",
            profile=None if recipe.triage.profile == "auto" else recipe.triage.profile,
            walk=_walk_of(pipeline, [pool.problem_id for pool in pools if pool.is_labelled])
            if base.max_passes > 1
            else None,
        )
    except PoolError as error:
        return base, {"rule": "paper", "reason": str(error)}
    value = {
        **found.to_json(),
        "promises": promise_rows(found.promises),
        "reliability": reliability_table(found.confidence, found.worth),
    }
    pipeline.run.write_json(value, "calibration", "decision.json")
    return found.policy, found.facts()


def has_violations(pools: Iterable[EvaluatedPool]) -> bool:
    """Whether labels have a violation score."""
    return any(not np.isnan(pool.violation).all() for pool in pools)


def labelled_pools(pools: Sequence[EvaluatedPool]) -> list[LabelledPool]:
    """Pools with the worth of their candidates: right or wrong, or 1 minus the violation score."""
    scored = has_violations(pools)
    return [
        LabelledPool(
            problem_id=pool.problem.problem_id,
            candidates=pool.candidates,
            worth=((1 - pool.violation) if scored else pool.correct)[: len(pool.candidates)],
        )
        for pool in pools
    ]


def adapters_out_of_bag(pipeline: "Pipeline") -> dict[str, tuple[bool, ...]]:
    """Which adapters did not train on each training problem that is learned from; empty where none is."""
    recipe = pipeline.recipe
    if not recipe.learns_out_of_bag:
        return {}
    return pairs.out_of_bag(
        pipeline.splits()[TRAIN],
        (row["problem_id"] for row in pipeline.run.read_table(PAIRS, "pairs", "train.parquet")),
        bag_frac=recipe.pairs.bag_frac,
        seed=recipe.training_seed,
        adapters=[adapter.name for adapter in recipe.scorer.adapters],
    )


def out_of_bag(pipeline: "Pipeline") -> list[LabelledPool]:
    """Training problems with the energies of those adapters that did not train on them."""
    unseen = adapters_out_of_bag(pipeline)
    return [pool for pool in labelled_pools(pipeline.evaluated_pools(TRAIN)) if pool.problem_id in unseen]


def _walk_of(pipeline: "Pipeline", problem_ids: Sequence[str]) -> WalkOf:
    """Walks the problems through every pass, drawing the passes that are not recorded yet."""
    problems = pipeline.problems()

    def walk(policies: Sequence[Policy]) -> Walk:
        own: Mapping[str, Policy] = dict(zip(problem_ids, policies, strict=True))
        fallback = policies[0]

        def policy_of(problem: Problem) -> Policy:
            return own.get(problem.problem_id, fallback)

        pipeline.complete(VALIDATION, [policy_of])
        pools = pipeline.recorded(VALIDATION)
        return _steps([problems[name] for name in problem_ids], own, pools, pipeline)

    return walk


def _steps(problems: Sequence[Problem], own: Mapping[str, Policy], pools: RecordedPools, pipeline: "Pipeline") -> Walk:
    parts = Parts(
        task=pipeline.passes.task,
        source=ReplaySource(pools.candidates, requests_of=pipeline.passes.later),
        checker=RecordedChecker(pools.reports),
        scorer=RecordedScorer(pools.energies),
        baselines=RecordedScores(pools.scores) if pipeline.recipe.evidence else None,
    )

    async def run() -> list[Any]:
        return [
            await trace(problem, parts=parts, labels=pools.labels, policy=own[problem.problem_id])
            for problem in problems
        ]

    traces = asyncio.run(run())
    num_steps = next(iter(own.values())).max_passes
    walks = [[found.steps[min(index, len(found.steps) - 1)] for index in range(num_steps)] for found in traces]
    return Walk(
        confidence=np.array(
            [[-math.inf if step.confidence is None else step.confidence for step in steps] for steps in walks]
        ),
        worth=np.array([[step.worth for step in steps] for steps in walks]),
    )
