"""Compare every selector on the same pools, and measure energies and signals of certainty."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from raydebm.config import EvaluationConfig
from raydebm.decision.policy import Policy
from raydebm.decision.table import SHUFFLE_SEED, PoolTable
from raydebm.errors import ConfigError, PoolError
from raydebm.evaluation.certainty.confidence import Decided, decision_study
from raydebm.evaluation.certainty.trust import trust
from raydebm.evaluation.results.energy_metrics import energy_measures
from raydebm.evaluation.results.entries import (
    comparisons,
    difficulties,
    dimension_table,
    entry_of,
    loop_entries,
    selector_rows,
    violation_comparisons,
)
from raydebm.evaluation.results.evaluation import BY_PART, Counts, Evaluation
from raydebm.evaluation.results.outcomes import outcome_values, summarise_loop, wave_savings
from raydebm.evaluation.results.selector_costs import cost_rows
from raydebm.evaluation.selectors import (
    BEST_GENERATOR,
    SINGLE_SHOT,
    Selector,
    added_selectors,
    best_generator_of,
    standard_selectors,
)
from raydebm.evaluation.stats.intervals import Bootstrap
from raydebm.evaluation.stats.json_results import command_line, versions
from raydebm.records import Label, Outcome

TOLERANCE = 0.15
"""Largest violation score of a correct candidate in pass@n, for tasks with violation scores (paper)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvaluationInputs:
    """Inputs of an evaluation, and metadata for its report."""

    pools: PoolTable
    """Pools of the test split."""
    policy: Policy
    """Policy of the outcomes, with lambda of the combined energy."""
    config: EvaluationConfig
    """Number of bootstrap resamples."""
    task: str
    title: str = ""
    """Name of the run. Default: the task's."""
    seed: int = 0
    """Seed of the run and its resamples."""
    adapters: Sequence[str] = ()
    """Adapter names in the order of the energies."""
    validation: PoolTable = field(default_factory=lambda: PoolTable.of(()))
    """Pools that fit probabilities and added selectors."""
    labelled: PoolTable | None = None
    """Pools that choose "the best generator": everything the posterior learns from. Default: ``validation``. If it is
    empty, the best generator in hindsight is shown."""
    decided: Decided | None = None
    """Selections of the policy's posterior. Default: no posterior."""
    outcomes: Sequence[Outcome] | None = None
    """Outcome of the loop by problem, for the rows about later passes and abstention."""
    labels: Mapping[str, Label] = field(default_factory=dict)
    """Labels by candidate id, for candidates of later passes."""
    judge_usd: Mapping[str, float] = field(default_factory=dict)
    """US dollars per rated candidate by judge, as billed."""
    fit: Mapping[str, Any] | None = None
    """Fit of the policy's posterior (``calibration/decision.json``). Default: no posterior."""
    command: str | None = None
    """Command that reproduces the evaluation. Default: this process's command line."""

    def adapter_names(self) -> list[str]:
        """Adapter names, one per energy of a candidate."""
        num_members = self.pools.num_members
        # With fewer energies than names, some adapters were not trained and the names cannot be assigned.
        if len(self.adapters) == num_members:
            return list(self.adapters)
        return [f"member {index + 1}" for index in range(num_members)]


def evaluate(inputs: EvaluationInputs) -> Evaluation:
    """Compare every selector on the same pools.

    Raises:
        PoolError: there is no pool, or no candidate has a label.
    """
    pools, policy, config, seed = inputs.pools, inputs.policy, inputs.config, inputs.seed
    if not pools.labelled.any():
        raise PoolError(
            f"evaluation needs labelled candidates: of {pools.num_pools} pools none has a label; run the label "
            "stage first"
        )
    if np.isnan(pools.members[~np.isnan(pools.mu)]).any():
        raise PoolError(
            f"some candidates have fewer than the {pools.num_members} energies of others; the energies come from "
            "different checkpoints, score all candidates again"
        )
    names = inputs.adapter_names()
    bootstrap = Bootstrap.of(pools.num_pools, num_bootstrap=config.num_bootstrap, seed=seed)
    selectors = selectors_of(
        pools,
        lambda_=policy.lambda_,
        adapters=names,
        validation=inputs.validation,
        labelled=inputs.labelled,
        decided=inputs.decided,
    )
    entries, loop = [entry_of(selector, pools) for selector in selectors], None
    if inputs.outcomes is not None and names:
        results = outcome_values(pools, inputs.outcomes, labels=inputs.labels)
        entries[-1:-1] = loop_entries(results, policy)  # before the oracle
        loop = replace(summarise_loop(results, bootstrap), waves=wave_savings(inputs.outcomes))
    rows = selector_rows(entries, bootstrap)
    by_part = [
        each for each in selectors if each.name in BY_PART or each.name.startswith((SINGLE_SHOT, BEST_GENERATOR))
    ]
    decision = None
    if inputs.decided is not None and inputs.fit is not None:
        decision = decision_study(inputs.decided, pools, fit=inputs.fit, bootstrap=bootstrap)
    trained = pools.with_trained_labels()
    return Evaluation(
        title=inputs.title or inputs.task,
        task=inputs.task,
        seed=seed,
        shuffle_seed=SHUFFLE_SEED,
        num_bootstrap=config.num_bootstrap,
        policy=policy.settings(),
        generators=pools.authors,
        adapters=tuple(names),
        counts=_counts(pools),
        rows=tuple(rows),
        costs=cost_rows(selectors, rows, pools, judge_usd=inputs.judge_usd, bootstrap=bootstrap),
        **energy_measures(pools, trained, names, lambda_=policy.lambda_, bootstrap=bootstrap, tolerance=TOLERANCE),
        difficulties=tuple(difficulties(pools.problems, entries, bootstrap)),
        loop=loop,
        comparisons=tuple(comparisons(entries, bootstrap, seed)),
        dimensions=dimension_table(pools, by_part, bootstrap),
        violation_comparisons=tuple(violation_comparisons(entries, bootstrap, seed)),
        trust=trust(pools, inputs.validation, lambda_=policy.lambda_, bootstrap=bootstrap, seed=seed),
        decision=decision,
        command=command_line() if inputs.command is None else inputs.command,
        versions=versions(),
    )


def selectors_of(
    pools: PoolTable,
    *,
    lambda_: float,
    adapters: Sequence[str],
    validation: PoolTable,
    labelled: PoolTable | None = None,
    decided: Decided | None = None,
) -> list[Selector]:
    """All selectors for these pools; ours and the oracle last.

    Args:
        validation: Pools that added selectors are tuned on.
        labelled: Pools that choose the best generator. Default: ``validation``.

    Raises:
        ConfigError: a user module cannot be imported, or two selectors have the same name.
    """
    labelled = validation if labelled is None else labelled
    selectors = [
        decided.best_generator() if decided is not None and selector.name == BEST_GENERATOR else selector
        for selector in standard_selectors(
            pools, lambda_=lambda_, adapters=adapters, best_generator=best_generator_of(labelled)
        )
    ]
    end = -2 if adapters else -1  # before ours and the oracle
    selectors[end:end] = [*([] if decided is None else decided.selectors()), *added_selectors(pools, validation)]
    counts = Counter(selector.name for selector in selectors)
    if repeated := [name for name, count in counts.items() if count > 1]:
        raise ConfigError(f"there is more than one selector {repeated[0]!r}; give each another name")
    return selectors


def _counts(pools: PoolTable) -> Counts:
    return Counts(
        problems=pools.num_pools,
        candidates=len(pools.candidates),
        greedy=0 if pools.greedy is None else len(pools.greedy.candidates),
        failed=len(pools.failed),
        unparsed=int((~pools.parsed).sum()),
        unscored=int(np.isnan(pools.mu).sum()),
        unlabeled=int(np.isnan(pools.correct).sum()),
    )
