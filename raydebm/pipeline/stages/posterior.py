"""A run's posterior and its policy: the run's tables in, the contents of ``decision.json`` out."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from raydebm.decision.calibration.policy_fit import PolicyFit, fit_policy
from raydebm.decision.calibration.walks import Walk, WalkOf, steps_of, to_length
from raydebm.decision.evidence.fitting import competition_of
from raydebm.decision.policy import Policy
from raydebm.decision.table import PoolTable
from raydebm.errors import PoolError
from raydebm.pipeline.context import TRAIN, VALIDATION, StageContext
from raydebm.pipeline.pools import evaluated_pools, recorded_labels
from raydebm.pipeline.stages.energies import adapters_out_of_bag
from raydebm.pipeline.stages.passes import outcomes_under
from raydebm.run.ensemble_file import read_ref


def fit_run_policy(context: StageContext, base: Policy) -> tuple[PolicyFit | None, dict[str, Any]]:
    """Fit the posterior and its policy; also returns facts for the manifest.

    Returns None, with the reason in the facts, if fewer than two problems are labelled or there is nothing to learn.
    """
    table = learned_from(context)
    walk = _walk_of(context, [problem.problem_id for problem in table.with_worth().problems])
    recipe = context.recipe
    try:
        fit = fit_policy(
            table,
            base=base,
            config=recipe.decision,
            task=recipe.task.name,
            competition=competition_of(context.task),
            checkpoint=read_ref(context.run.uri("scorer")).fingerprint,
            profile=None if recipe.decision.profile == "auto" else recipe.decision.profile,
            walk=walk if base.max_passes > 1 else None,
        )
    except PoolError as error:
        return None, {"rule": "paper", "reason": str(error)}
    return fit, fit.facts()


def learned_from(context: StageContext) -> PoolTable:
    """The problems that the posterior learns from: validation problems, and training problems with the energies of
    adapters that did not train on them."""
    unseen = adapters_out_of_bag(context)
    if not unseen:
        return evaluated_pools(context, VALIDATION)
    pools, used = evaluated_pools(context, VALIDATION, TRAIN), {*context.splits()[VALIDATION], *unseen}
    return pools.of_pools([place for place, problem in enumerate(pools.problems) if problem.problem_id in used])


def _walk_of(context: StageContext, problem_ids: Sequence[str]) -> WalkOf:
    """Walk the problems through every pass, sampling missing passes."""

    def walk(policies: Sequence[Policy]) -> Walk:
        own: Mapping[str, Policy] = dict(zip(problem_ids, policies, strict=True))
        outcomes = outcomes_under(context, VALIDATION, [lambda problem: own.get(problem.problem_id, policies[0])])[0]
        labels = recorded_labels(context, VALIDATION)
        steps = {outcome.problem.problem_id: steps_of(outcome, labels) for outcome in outcomes}
        walks = [to_length(steps[name], policies[0].max_passes) for name in problem_ids]
        return Walk(
            confidence=np.array(
                [[-math.inf if step.confidence is None else step.confidence for step in steps] for steps in walks]
            ),
            worth=np.array([[step.worth for step in steps] for steps in walks]),
        )

    return walk
