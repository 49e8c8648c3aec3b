"""Evaluation of a run: compare every selector on the same pools, and measure energies and signals of certainty."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from raydebm.decision.policy import Policy
from raydebm.decision.table import SHUFFLE_SEED, PoolTable
from raydebm.errors import ConfigError, PoolError
from raydebm.evaluation.certainty.confidence import (
    CHOSEN,
    POSTERIOR,
    Decided,
    DecisionStudy,
    FieldStudy,
    decision_study,
    field_study,
)
from raydebm.evaluation.certainty.reliability import Trust, trust
from raydebm.evaluation.results.energy_metrics import (
    EnergyMeasureRow,
    EnsembleTheory,
    PassAtN,
    PickPoint,
    Retained,
    energy_measures,
)
from raydebm.evaluation.results.entries import (
    ALL_PASSES,
    ANSWERED,
    DifficultyRow,
    DimensionTable,
    LoopSummary,
    OutcomeValues,
    SelectorEntry,
    SelectorRow,
    comparisons,
    difficulties,
    dimension_table,
    entry_of,
    loop_entries,
    outcome_values,
    selector_rows,
    summarise_loop,
)
from raydebm.evaluation.results.selector_costs import CostRow, cost_rows
from raydebm.evaluation.selectors import (
    BEST_GENERATOR,
    PAPER_RULE,
    SINGLE_SHOT,
    Selector,
    added_selectors,
    best_generator_of,
    standard_selectors,
)
from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.evaluation.stats.json_results import JsonResults, command_line, versions
from raydebm.evaluation.stats.significance import Comparison
from raydebm.generators.tally import SavedSamples
from raydebm.records import Label, Outcome
from raydebm.run.tables import EnergyRow


@dataclass(frozen=True, slots=True, kw_only=True)
class TextsRead:
    """Counts for the candidates of one split. A count is None if truncation was not recorded."""

    split: str
    num_candidates: int
    without_problem: int | None
    """Candidates scored without any part of the problem."""
    problem_cut: int | None
    """Candidates scored with only a part of the problem."""
    answer_cut: int | None
    """Candidates scored with only a part of their own text."""


def texts_read(
    rows: Iterable[EnergyRow], *, problem_of: Mapping[str, str], splits: Mapping[str, Sequence[str]]
) -> tuple[TextsRead, ...]:
    """Count by split. Splits without energies are omitted.

    Args:
        rows: Energies of the first pass.
        problem_of: Problem ids by candidate id.
        splits: Problem ids by split.
    """
    split_of = {problem_id: split for split, problem_ids in splits.items() for problem_id in problem_ids}
    shares: dict[str, list[tuple[float | None, float | None]]] = {split: [] for split in splits}
    for row in rows:
        if row.members is not None and (split := split_of.get(problem_of.get(row.candidate_id, ""))) is not None:
            shares[split].append((row.problem_read, row.answer_read))

    def count(split: str, read: Callable[[float, float], bool]) -> int | None:
        known = [(problem, answer) for problem, answer in shares[split] if problem is not None and answer is not None]
        return sum(read(*each) for each in known) if len(known) == len(shares[split]) else None

    return tuple(
        TextsRead(
            split=split,
            num_candidates=len(shares[split]),
            without_problem=count(split, lambda problem, answer: problem == 0),
            problem_cut=count(split, lambda problem, answer: 0 < problem < 1),
            answer_cut=count(split, lambda problem, answer: answer < 1),
        )
        for split in splits
        if shares[split]
    )


def joined_texts(parts: Iterable[Sequence[TextsRead]]) -> tuple[TextsRead, ...]:
    """Sums of counts by split. A sum is None if one of its terms is."""
    by_split: dict[str, list[TextsRead]] = {}
    for row in chain.from_iterable(parts):
        by_split.setdefault(row.split, []).append(row)

    def total(rows: Sequence[TextsRead], name: str) -> Any:
        counts = [getattr(row, name) for row in rows]
        return None if None in counts else sum(counts)

    names = ("num_candidates", "without_problem", "problem_cut", "answer_cut")
    return tuple(
        TextsRead(split=split, **{name: total(rows, name) for name in names}) for split, rows in by_split.items()
    )


BY_PART = ("random", "majority vote", "constraint only", "mu only", PAPER_RULE, "oracle")
"""Selectors in the table of violation parts, in addition to single-shot models and the best generator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    problems: int
    candidates: int
    """Number of candidates in the pools, without greedy ones."""
    greedy: int
    failed: int
    unparsed: int
    unscored: int
    unlabeled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation(JsonResults):
    KIND: ClassVar[str] = "an evaluation"
    REMEDY: ClassVar[str] = "run the evaluation stage again"

    title: str
    task: str
    seed: int
    shuffle_seed: int
    num_bootstrap: int
    policy: dict[str, Any]
    generators: tuple[str, ...]
    adapters: tuple[str, ...]
    counts: Counts
    rows: tuple[SelectorRow, ...]
    energies: tuple[EnergyMeasureRow, ...]
    """Quality of the energies. Correct candidates are those of training: for tasks with violation scores, the best
    share of each pool."""
    pass_at_n: tuple[PassAtN, ...]
    costs: tuple[CostRow, ...]
    tolerance: float | None
    """Largest violation score of a correct candidate in ``pass_at_n``. None if the task has no violation scores."""
    sigma_auroc: Estimate
    """AUROC of -sigma for a correct selection. Above 0.5, a low sigma indicates a correct one."""
    selective: tuple[Retained, ...]
    mu_sigma_auroc: Estimate
    """Same as ``sigma_auroc`` for the selections by mu."""
    mu_selective: tuple[Retained, ...]
    theory: EnsembleTheory | None
    difficulties: tuple[DifficultyRow, ...]
    loop: LoopSummary | None
    picks: tuple[PickPoint, ...]
    comparisons: tuple[Comparison, ...]
    """Comparisons in pass@1 of the pairs that ``compared_pairs`` lists."""
    dimensions: DimensionTable | None
    """Parts of the violation by selector. None if no candidate violates anything."""
    violation_comparisons: tuple[Comparison, ...]
    """Comparisons in violation avoided (1 - violation score). Empty if the task has no violation scores."""
    trust: Trust | None
    decision: DecisionStudy | None
    command: str
    versions: dict[str, str]
    fields: FieldStudy | None = None
    saved: SavedSamples | None = None
    """Samples saved by waves, over all splits. None if the first pass was sampled at once."""
    paid_usd: float | None = None
    """US dollars that the run paid, over all splits. None if no price is known."""
    texts_read: tuple[TextsRead, ...] = ()
    """Truncation of the scorer's inputs, by split. Empty in evaluations of earlier versions and without energies."""

    def row(self, name: str) -> SelectorRow | None:
        """Row of a selector. None if the pools do not allow it."""
        return next((row for row in self.rows if row.name == name), None)

    @property
    def is_continuous(self) -> bool:
        """Whether the task has violation scores. Selectors are then compared by the mean violation."""
        return any(row.mean_violation.value is not None for row in self.rows)

    def facts(self) -> dict[str, Any]:
        """Main numbers, for display and for a manifest."""
        shown = ("random", "majority vote", "greedy", POSTERIOR, CHOSEN, PAPER_RULE, ALL_PASSES, ANSWERED, "oracle")
        rows = [row for name in shown if (row := self.row(name)) is not None]
        pass_at_1 = {row.name: row.pass_at_1.value for row in rows}
        violated = {row.name: row.mean_violation.value for row in rows} if self.is_continuous else None
        known = {
            "num_problems": self.counts.problems,
            "num_candidates": self.counts.candidates,
            "num_unlabeled": self.counts.unlabeled,
            "pass_at_1": pass_at_1,
            **({"mean_violation": violated} if violated else {}),
            "coverage": None if self.loop is None else self.loop.coverage.value,
        }
        if self.decision is None:
            return known
        auroc, ece = self.decision.confidence.auroc.value, self.decision.reliability.ece.value
        return known | {"profile": self.decision.profile, "confidence_auroc": auroc, "confidence_ece": ece}


TOLERANCE = 0.15
"""Largest violation score of a correct candidate in pass@n, for tasks with violation scores (paper)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvaluationInputs:
    """Inputs of an evaluation, and metadata for its report."""

    pools: PoolTable
    policy: Policy
    """Policy of the outcomes, with lambda of the combined energy."""
    task: str
    title: str = ""
    """Name of the run. Default: name of the task."""
    seed: int = 0
    adapters: Sequence[str] = ()
    """Adapter names in the order of the energies."""
    validation: PoolTable = field(default_factory=lambda: PoolTable.of(()))
    """Pools on which probabilities and added selectors are fitted."""
    labelled: PoolTable | None = None
    """Pools on which the best generator is chosen: all that the posterior learns from. Default: ``validation``. If they
    are empty, the best generator is chosen in hindsight."""
    decided: Decided | None = None
    """Selections of the policy's posterior. Default: no posterior."""
    outcomes: Sequence[Outcome] | None = None
    """Outcome of the loop by problem, for the rows about later passes and abstention."""
    labels: Mapping[str, Label] = field(default_factory=dict)
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
    pools, policy, seed = inputs.pools, inputs.policy, inputs.seed
    if not pools.labelled.any():
        raise PoolError(
            f"evaluation needs labelled candidates: of {pools.num_pools} pools none has a label; run the labels "
            "stage first"
        )
    if np.isnan(pools.members[~np.isnan(pools.mu)]).any():
        raise PoolError(
            f"some candidates have fewer than the {pools.num_members} energies of others; the energies come from "
            "different checkpoints. Score all candidates again"
        )
    names = inputs.adapter_names()
    bootstrap = Bootstrap.of(pools.num_pools, seed=seed)
    selectors, entries, loop = selector_entries(inputs)
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
        num_bootstrap=len(bootstrap.weights) - 1,
        policy=policy.settings(),
        generators=pools.authors,
        adapters=tuple(names),
        counts=_counts(pools),
        rows=tuple(rows),
        costs=cost_rows(selectors, rows, pools, judge_usd=inputs.judge_usd, bootstrap=bootstrap),
        **energy_measures(pools, trained, names, lambda_=policy.lambda_, bootstrap=bootstrap, tolerance=TOLERANCE),
        difficulties=tuple(difficulties(pools.problems, entries, bootstrap)),
        loop=None if loop is None else summarise_loop(loop, bootstrap),
        comparisons=tuple(comparisons(entries, bootstrap, seed)),
        dimensions=dimension_table(pools, by_part, bootstrap),
        violation_comparisons=tuple(comparisons(entries, bootstrap, seed, in_violation=True)),
        trust=trust(pools, inputs.validation, lambda_=policy.lambda_, bootstrap=bootstrap, seed=seed),
        decision=decision,
        fields=field_study(
            inputs.outcomes or (),
            inputs.labels,
            problem_ids=[problem.problem_id for problem in pools.problems],
            tau_field=policy.tau_field,
            bootstrap=bootstrap,
        ),
        command=command_line() if inputs.command is None else inputs.command,
        versions=versions(),
    )


def selector_entries(
    inputs: EvaluationInputs,
) -> tuple[list[Selector], list[SelectorEntry], OutcomeValues | None]:
    """All selectors, the values of selectors and loop on each problem (the oracle's last), and the loop's results."""
    pools, names = inputs.pools, inputs.adapter_names()
    selectors = selectors_of(
        pools,
        lambda_=inputs.policy.lambda_,
        adapters=names,
        validation=inputs.validation,
        labelled=inputs.labelled,
        decided=inputs.decided,
    )
    entries, loop = [entry_of(selector, pools) for selector in selectors], None
    if inputs.outcomes is not None and names:
        loop = outcome_values(pools, inputs.outcomes, labels=inputs.labels)
        entries[-1:-1] = loop_entries(loop, inputs.policy)
    return selectors, entries, loop


def selectors_of(
    pools: PoolTable,
    *,
    lambda_: float,
    adapters: Sequence[str],
    validation: PoolTable,
    labelled: PoolTable | None = None,
    decided: Decided | None = None,
) -> list[Selector]:
    """All selectors for these pools; the paper's rule and the oracle last.

    Args:
        validation: Pools on which added selectors are fitted.
        labelled: Pools on which the best generator is chosen. Default: ``validation``.

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
    end = -2 if adapters else -1  # before the paper's rule and the oracle
    selectors[end:end] = [*([] if decided is None else decided.selectors()), *added_selectors(pools, validation)]
    counts = Counter(selector.name for selector in selectors)
    if repeated := [name for name, count in counts.items() if count > 1]:
        raise ConfigError(f"there is more than one selector {repeated[0]!r}; give each its own name")
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
