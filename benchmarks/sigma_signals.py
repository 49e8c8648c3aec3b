"""What the spread over ensemble members says about a selection, beyond the votes and beyond who wrote it.

    python benchmarks/sigma_signals.py runs/gsm8k-recorded runs/math-recorded

For the pick by argmin E on every test problem of a finished run: today's sigma (spread of the pick's energy), the
spread of the margin (each member's lowest energy among other answers minus its lowest for the pick's answer), and the
share of members whose own selection gives the pick's answer. AUROC for "the pick is right" (of minus the value where a
high one should mean doubt): over all problems, between problems with the same share of votes (thirds of the problems),
and between problems whose pick has the same author. Intervals: 95 %, percentile bootstrap over problems, 2,000 times.

Second table: what the posterior loses or gains by a term, in log-likelihood per problem (nats), cross-fitted over all
problems that no adapter trained on.
"""

import argparse
import math
from functools import partial

import numpy as np

from raydebm.config import parse_recipe
from raydebm.decision.evidence.built_in_terms import DEFAULT_CONTEXT, DEFAULT_TERMS
from raydebm.decision.evidence.fitting import LabelledPool, LabelledTable, cross_fit, fit_posterior
from raydebm.evaluation.certainty.signals import SIGMA, signals
from raydebm.evaluation.pools.pool import Bools, Floats, Ints
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.report.table_cells import number
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate, fewest_of_a_class, weighted_auroc
from raydebm.pipeline.context import TEST, VALIDATION
from raydebm.pipeline.policies import calibrated_policy
from raydebm.pipeline.pools import evaluated_pools
from raydebm.pipeline.runner import Pipeline
from raydebm.pipeline.stages.posterior import labelled_pools
from raydebm.run.directory import RunDir

NUM_STRATA = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dirs", nargs="+")
    given = parser.parse_args()
    lines: list[str] = []
    print("| run | signal | AUROC | between equal vote shares | between picks by one author |")
    print("|---|---|---:|---:|---:|")
    for run_dir in given.run_dirs:
        recipe = parse_recipe({**RunDir(run_dir).read_json("recipe.json"), "run_dir": run_dir}, where=run_dir)
        pipeline = Pipeline(recipe=recipe)
        lambda_ = calibrated_policy(pipeline).lambda_
        for line in rows(Stack.of(evaluated_pools(pipeline, TEST)), lambda_, name=recipe.name, seed=recipe.seed):
            print(line, flush=True)
        evaluated = [*evaluated_pools(pipeline, VALIDATION), *evaluated_pools(pipeline, TEST)]
        pools = [pool for pool in labelled_pools(evaluated) if pool.is_labelled]
        lines += gains(pools, lambda_, name=recipe.name, seed=recipe.seed)
    print("\n| run | posterior | log-likelihood per problem minus the default's | problems |\n|---|---|---:|---:|")
    print("\n".join(lines))


def gains(pools: list[LabelledPool], lambda_: float, *, name: str, seed: int) -> list[str]:
    """One line per change of the posterior's terms."""
    labelled_table = LabelledTable.of(pools)
    bootstrap = Bootstrap.of(len(pools), num_bootstrap=2000, seed=seed)

    def likelihood(terms: tuple[str, ...], context: tuple[str, ...]) -> Floats:
        fit = partial(fit_posterior, labelled_table, lambda_=lambda_, terms=terms, context=context)
        crossed = cross_fit(labelled_table, lambda used: fit(used=used))
        right = np.bincount(
            labelled_table.table.pool_of_cluster,
            crossed.probability * (labelled_table.cluster_worth >= 0.5),
            len(pools),
        )
        has_right = (
            np.bincount(labelled_table.table.pool_of_cluster, labelled_table.cluster_worth >= 0.5, len(pools)) > 0
        )
        logs: Floats = np.log(np.clip(np.where(has_right, right, crossed.none), 1e-9, 1))
        return logs

    default = likelihood(DEFAULT_TERMS, DEFAULT_CONTEXT)
    without = tuple(term for term in DEFAULT_TERMS if term != "members")
    changes = {
        "with the spread of the margin": likelihood(DEFAULT_TERMS, (*DEFAULT_CONTEXT, "sigma")),
        "without the agreement of the members": likelihood(without, DEFAULT_CONTEXT),
    }
    return [
        f"| {name} | {what} | {number(bootstrap.mean(values - default), signed=True)} | {len(pools)} |"
        for what, values in changes.items()
    ]


def rows(stack: Stack, lambda_: float, *, name: str, seed: int) -> list[str]:
    """One line of the table per signal."""
    mu = stack.mu()
    picked = stack.lowest(stack.energy(mu, lambda_), mu)
    correct = stack.at(stack.correct, picked)
    by_name = {signal.name: signal.values for signal in signals(stack, lambda_, constant=True)}
    authors = np.where(picked >= 0, stack.generator[np.arange(len(picked)), picked], -1)
    shares = strata(by_name["vote share"])
    bootstrap = Bootstrap.of(len(picked), num_bootstrap=2000, seed=seed)
    columns = {
        "sigma of the pick": by_name[SIGMA],
        "spread of the margin": -margin_spread(stack, picked),
        "agreement of the members": by_name["adapter agreement"],
        "share of votes": by_name["vote share"],
    }
    return [
        f"| {name} | {signal} | {number(bootstrap.auroc(values, correct))} | "
        + " | ".join(number(within(values, correct, groups, bootstrap)) for groups in (shares, authors))
        + " |"
        for signal, values in columns.items()
    ]


def margin_spread(stack: Stack, picked: Ints) -> Floats:
    """(P,): standard deviation over members (ddof=0) of the lead of the pick's answer; NaN without another answer."""
    problems = np.arange(len(picked))
    of_pick = np.where(picked >= 0, stack.answer[problems, picked], -2)
    same: Bools = stack.present & (stack.answer == of_pick[:, None])
    same[problems[picked >= 0], picked[picked >= 0]] = True
    members = np.where(np.isnan(stack.members), math.inf, stack.members)
    own = np.where(same[:, :, None], members, math.inf).min(axis=1)
    others = np.where((stack.present & ~same)[:, :, None], members, math.inf).min(axis=1)
    usable = (np.isfinite(own) & np.isfinite(others)).all(axis=1) & (picked >= 0)
    spread = np.full(len(picked), math.nan)
    spread[usable] = (others[usable] - own[usable]).std(axis=1)
    return spread


def strata(values: Floats) -> Ints:
    """(P,): which third of the problems each value is in; equal values are in the same one."""
    cuts = np.nanquantile(values, np.arange(1, NUM_STRATA) / NUM_STRATA)
    return np.searchsorted(cuts, values, side="left").astype(np.intp)


def within(values: Floats, correct: Floats, groups: Ints, bootstrap: Bootstrap) -> Estimate:
    """AUROC over pairs of problems of the same group: sum of the groups' wins by the sum of their pairs."""
    known = ~(np.isnan(values) | np.isnan(correct))
    weights = np.vstack([np.ones(len(values)), bootstrap.counts])
    wins, pairs = np.zeros((2, len(weights)))
    for group in np.unique(groups[known]):
        rows_ = known & (groups == group)
        own, right = weights[:, rows_], correct[rows_]
        area = weighted_auroc(values[rows_], right, own)
        count = (own @ right) * (own @ (1 - right))
        wins += np.where(count > 0, np.nan_to_num(area) * count, 0.0)
        pairs += count
    area = np.divide(wins, pairs, out=np.full(len(wins), math.nan), where=pairs > 0)
    return bootstrap.auroc_interval(
        float(area[0]), area[1:], int(known.sum()), fewest=fewest_of_a_class(correct[known])
    )


if __name__ == "__main__":
    main()
