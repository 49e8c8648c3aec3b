"""Compare every selector on the same pools, and measure what energies and signals of certainty are worth."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from raydebm.config import EvaluationConfig
from raydebm.decision.policy import Policy
from raydebm.errors import ConfigError, PoolError
from raydebm.evaluation.certainty.confidence import Decided, decision_study
from raydebm.evaluation.certainty.trust import trust
from raydebm.evaluation.pools.pool import SHUFFLE_SEED
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.provenance import command_line, versions
from raydebm.evaluation.results.energy_measures import energy_measures
from raydebm.evaluation.results.entries import (
    comparisons,
    difficulties,
    entry_of,
    loop_entries,
    selector_rows,
    violation_comparisons,
)
from raydebm.evaluation.results.evaluation import BY_PART, Counts, Evaluation
from raydebm.evaluation.results.outcomes import outcome_values, summarise_loop, wave_savings
from raydebm.evaluation.results.selector_costs import cost_rows
from raydebm.evaluation.results.violation_parts import dimension_table
from raydebm.evaluation.selectors.agreement import agreement_selectors
from raydebm.evaluation.selectors.learned_vote import learned_votes
from raydebm.evaluation.selectors.length_control import length_controlled
from raydebm.evaluation.selectors.peers import peer_selectors
from raydebm.evaluation.selectors.selector import BEST_GENERATOR, SINGLE_SHOT, Selector, added_selectors
from raydebm.evaluation.selectors.standard import best_generator_of, standard_selectors
from raydebm.evaluation.stats.intervals import Bootstrap
from raydebm.records import Label, Outcome

TOLERANCE = 0.15
"""Violation score up to which a candidate counts as correct in pass@n, for tasks with such scores (paper)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvaluationInputs:
    """What is evaluated, and what a report states about it."""

    pools: Stack
    """The test split."""
    policy: Policy
    """Lambda of the combined energy, and the thresholds that the outcomes were made with."""
    config: EvaluationConfig
    """Number of bootstrap resamples, tolerance, prices, and the shuffle seed to state."""
    task: str
    title: str = ""
    """Name of the run; the task's by default."""
    seed: int = 0
    """Run seed; the resamples follow from it."""
    adapters: Sequence[str] = ()
    """Names in the order of the energies."""
    validation: Stack = field(default_factory=lambda: Stack.of(()))
    """Pools on which whatever reads energies is tuned."""
    labelled: Stack | None = None
    """Pools, without energies, on which "the best generator" and the generator-weighted vote are fitted: all that the
    posterior learns from. None: ``validation``. Without any the best generator in hindsight is shown."""
    decided: Decided | None = None
    """What the policy's posterior believes about the pools; None: it has none."""
    outcomes: Sequence[Outcome] | None = None
    """The loop's outcome per problem, for the rows about later passes and abstention."""
    labels: Mapping[str, Label] = field(default_factory=dict)
    """By candidate id, for candidates of later passes."""
    fit: Mapping[str, Any] | None = None
    """How the policy's posterior was fitted (``calibration/decision.json``); None: it has none."""
    positive_frac: float = 0.25
    """For tasks with a violation score, the share of a pool that the scorer was trained to prefer; it counts as correct
    where the energies themselves are judged (gaps, pairs, theory)."""
    command: str | None = None
    """How to repeat this; the command line of this process by default."""

    def adapter_names(self) -> list[str]:
        """The adapters' names, one per energy of a candidate."""
        num_members = self.pools.num_members
        # Fewer energies than names: some adapters were not trained, and we cannot know here which; better no name than
        # the wrong one.
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
            f"evaluation needs labelled candidates: of {len(pools.problems)} pools none has a label; run the label "
            "stage first"
        )
    names = inputs.adapter_names()
    bootstrap = Bootstrap.of(len(pools.problems), num_bootstrap=config.num_bootstrap, seed=seed)
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
    trained = pools.with_trained_labels(inputs.positive_frac)
    return Evaluation(
        title=inputs.title or inputs.task,
        task=inputs.task,
        seed=seed,
        shuffle_seed=SHUFFLE_SEED,
        num_bootstrap=config.num_bootstrap,
        policy=policy.settings(),
        generators=pools.generators,
        adapters=tuple(names),
        counts=_counts(pools),
        rows=tuple(rows),
        costs=cost_rows(selectors, rows, pools, prices=config.prices, bootstrap=bootstrap),
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
    pools: Stack,
    *,
    lambda_: float,
    adapters: Sequence[str],
    validation: Stack,
    labelled: Stack | None = None,
    decided: Decided | None = None,
) -> list[Selector]:
    """Every selector that these pools allow, also those that other pools tune; ours and the oracle last.

    Args:
        validation: tunes what reads energies.
        labelled: tunes what reads none; None: ``validation``.

    Raises:
        ConfigError: a module of the user cannot be imported, or two selectors have one name.
    """
    labelled = validation if labelled is None else labelled
    selectors = [
        decided.best_generator() if decided is not None and selector.name == BEST_GENERATOR else selector
        for selector in standard_selectors(
            pools, lambda_=lambda_, adapters=adapters, best_generator=best_generator_of(labelled)
        )
    ]
    tuned = [
        *length_controlled(validation),
        *learned_votes(validation, labelled),
        *agreement_selectors(validation, lambda_=lambda_),
        *([] if decided is None else decided.selectors()),
        *peer_selectors(pools, validation),
        *added_selectors(pools, validation),
    ]
    end = -2 if adapters else -1  # before ours and the oracle
    selectors[end:end] = tuned
    counts = Counter(selector.name for selector in selectors)
    if repeated := [name for name, count in counts.items() if count > 1]:
        raise ConfigError(f"there is more than one selector {repeated[0]!r}; give each another name")
    return selectors


def _counts(stack: Stack) -> Counts:
    return Counts(
        problems=len(stack.problems),
        candidates=int(stack.present.sum()),
        greedy=0 if stack.greedy is None else int(stack.greedy.present.sum()),
        failed=len(stack.failed),
        unparsed=int((stack.present & ~stack.parsed).sum()),
        unscored=int((stack.present & np.isnan(stack.mu())).sum()),
        unlabeled=int((stack.present & np.isnan(stack.correct)).sum()),
    )
