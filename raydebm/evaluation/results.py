"""Evaluating a run: from pools and outcomes to numbers with intervals. ``report`` makes pages of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from raydebm.config import EvaluationConfig
from raydebm.decision.policy import Policy
from raydebm.errors import PoolError
from raydebm.evaluation.agreement import agreement_selectors
from raydebm.evaluation.confidence import CHOSEN, POSTERIOR, Decided, DecisionStudy, decision_study
from raydebm.evaluation.costs import CostRow, cost_rows
from raydebm.evaluation.dimensions import DimensionTable, dimension_table
from raydebm.evaluation.entries import (
    ALL_PASSES,
    ANSWERED,
    OURS,
    DifficultyRow,
    SelectorRow,
    comparisons,
    difficulties,
    entry_of,
    loop_entries,
    selector_rows,
    violation_comparisons,
)
from raydebm.evaluation.intervals import NOTHING, Bootstrap, Estimate
from raydebm.evaluation.learned_vote import learned_votes
from raydebm.evaluation.length_control import length_controlled
from raydebm.evaluation.metrics import (
    Retained,
    energy_gap,
    kendall_tau_b,
    pair_accuracy,
    pass_at_n_by_chance,
    pass_at_n_by_energy,
    picks,
    pool_energies,
    selective_accuracy,
    sigma_auroc,
)
from raydebm.evaluation.outcomes import LoopSummary, outcome_values, summarise_loop, wave_savings
from raydebm.evaluation.peer_selectors import peer_selectors
from raydebm.evaluation.pools import EvaluatedPool, Floats, with_tolerance, with_trained_labels
from raydebm.evaluation.provenance import command_line, versions
from raydebm.evaluation.selectors import SINGLE_SHOT, Selector, best_generator_of, standard_selectors
from raydebm.evaluation.significance import Comparison
from raydebm.evaluation.stack import Stack
from raydebm.evaluation.stopping import StoppingRow
from raydebm.evaluation.stopping_rows import stopping_rows
from raydebm.evaluation.theory import EnsembleTheory, ensemble_theory
from raydebm.evaluation.trust import Trust, trust
from raydebm.generators.tally import SavedSamples
from raydebm.records import Label, Outcome

BY_PART = ("random", "majority vote", "constraint only", "mu only", OURS, "oracle")
"""Selectors whose parts of the violation are shown, with single-shot models and the best generator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyRow:
    """How well one energy orders the candidates of a problem; each a mean over the problems that tell, whose number is
    its n."""

    name: str
    pair_accuracy: Estimate
    kendall_tau_b: Estimate
    energy_gap: Estimate
    """Mean energy of incorrect minus that of correct candidates."""
    mean_correct: Estimate
    """Over all correct candidates, so problems with many of them weigh more."""
    mean_incorrect: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class PassAtN:
    n: int
    """Candidates drawn."""
    by_energy: Estimate
    by_mu: Estimate
    """Lowest mu first, the constraints left out."""
    by_chance: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class PickPoint:
    """One problem's selection on the mu-sigma plane."""

    mu: float
    sigma: float
    correct: bool | None
    """None: unlabeled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    problems: int
    candidates: int
    """Of the pools, greedy ones left out."""
    greedy: int
    failed: int
    """Without text."""
    unparsed: int
    """With text but without an answer."""
    unscored: int
    """With text but without energies."""
    unlabeled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Everything a report says, as data."""

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
    energies: tuple[EnergyRow, ...]
    """Correct is what training preferred: where the task has a violation score, the best share of each pool."""
    pass_at_n: tuple[PassAtN, ...]
    costs: tuple[CostRow, ...]
    """Of every selector, beside what it is worth."""
    tolerance: float | None
    """Violation score up to which a candidate counts as correct in ``pass_at_n``; None where the task has none."""
    sigma_auroc: Estimate
    """Of -sigma for a correct selection; above 0.5, a low sigma signals a correct one."""
    selective: tuple[Retained, ...]
    mu_sigma_auroc: Estimate
    """As ``sigma_auroc``, of the selections by mu alone."""
    mu_selective: tuple[Retained, ...]
    theory: EnsembleTheory | None
    difficulties: tuple[DifficultyRow, ...]
    loop: LoopSummary | None
    picks: tuple[PickPoint, ...]
    comparisons: tuple[Comparison, ...]
    """Ours against every other selector, and every vote that uses energies against the plain one."""
    dimensions: DimensionTable | None
    """Parts of the violation by selector; None where no candidate violates anything."""
    violation_comparisons: tuple[Comparison, ...]
    """The same in violation avoided (1 - violation score); empty where the task has none."""
    trust: Trust | None
    """Signals of certainty and calibration; None without energies."""
    decision: DecisionStudy | None
    """The posterior's rule; None where none was fitted."""
    stopping: tuple[StoppingRow, ...]
    """The vote when sampling stops early; empty where no answer occurs twice."""
    command: str
    versions: dict[str, str]
    saved: SavedSamples | None = None
    """What sampling in waves did not send, over all splits; None where the first pass was sampled at once."""

    def row(self, name: str) -> SelectorRow | None:
        return next((row for row in self.rows if row.name == name), None)

    @property
    def is_continuous(self) -> bool:
        """The task has a violation score; its mean is then what selectors are compared by."""
        return any(row.mean_violation.value is not None for row in self.rows)

    def facts(self) -> dict[str, Any]:
        """The few numbers to show and to keep in a manifest."""
        shown = ("random", "majority vote", "greedy", POSTERIOR, CHOSEN, OURS, ALL_PASSES, ANSWERED, "oracle")
        rows = [row for name in shown if (row := self.row(name)) is not None]
        found = {row.name: row.pass_at_1.value for row in rows}
        violated = {row.name: row.mean_violation.value for row in rows} if self.is_continuous else None
        return {
            "num_problems": self.counts.problems,
            "num_candidates": self.counts.candidates,
            "num_unlabeled": self.counts.unlabeled,
            "pass_at_1": found,
            **({"mean_violation": violated} if violated else {}),
            "coverage": None if self.loop is None else self.loop.coverage.value,
            **self._decision_facts(),
        }

    def _decision_facts(self) -> dict[str, Any]:
        if self.decision is None:
            return {}
        found = self.decision
        return {
            "profile": found.profile,
            "confidence_auroc": found.confidence.auroc.value,
            "confidence_ece": found.reliability.ece.value,
        }

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = _ADAPTER.dump_python(self, mode="json")
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Evaluation":
        """Inverse of ``to_json``.

        Raises:
            PoolError: the value is not an evaluation of this version.
        """
        try:
            return _ADAPTER.validate_python(value)
        except ValueError as error:
            raise PoolError(f"not an evaluation of this version, run the evaluation stage again: {error}") from error


_ADAPTER = TypeAdapter(Evaluation)


def evaluate(
    pools: Sequence[EvaluatedPool],
    *,
    policy: Policy,
    config: EvaluationConfig,
    task: str,
    title: str = "",
    seed: int = 0,
    adapters: Sequence[str] = (),
    validation: Sequence[EvaluatedPool] = (),
    outcomes: Sequence[Outcome] | None = None,
    labels: Mapping[str, Label] | None = None,
    fit: Mapping[str, Any] | None = None,
    positive_frac: float = 0.25,
    command: str | None = None,
) -> Evaluation:
    """Compare every selector on the same pools.

    Args:
        pools: the test split (see ``pools.assemble_pools``).
        policy: lambda of the combined energy, and the thresholds the outcomes were made with.
        config: number of bootstrap resamples and the shuffle seed to state.
        task: name to state.
        title: name of the run to state.
        seed: run seed; the resamples follow from it.
        adapters: names in the order of the energies.
        validation: pools on which "the best generator" is chosen; without them the best one in hindsight is shown.
        outcomes: the loop's outcome per problem, for the rows about later passes and abstention.
        labels: by candidate id, for candidates of later passes.
        fit: how the policy's posterior was fitted (``calibration/decision.json``); None: it has none.
        positive_frac: for tasks with a violation score, the share of a pool that the scorer was trained to prefer; it
            counts as correct where the energies themselves are judged (gaps, pairs, theory).
        command: how to repeat this; the command line of this process by default.

    Raises:
        PoolError: there is no pool, or no candidate has a label.
    """
    if not pools or all(np.isnan(pool.correct).all() for pool in pools):
        raise PoolError(
            f"evaluation needs labelled candidates: of {len(pools)} pools none has a label; run the label stage first"
        )
    num_members = max(pool.members.shape[1] for pool in pools)
    names = _adapter_names(adapters, num_members)
    bootstrap = Bootstrap.of(len(pools), num_bootstrap=config.num_bootstrap, seed=seed)
    decided = Decided.of(pools, policy)
    selectors = selectors_of(pools, lambda_=policy.lambda_, adapters=names, validation=validation, decided=decided)
    entries = [entry_of(selector, pools) for selector in selectors]
    by_part = [
        selector
        for selector in selectors
        if selector.name in BY_PART or selector.name.startswith((SINGLE_SHOT, "best generator"))
    ]
    loop = None
    if outcomes is not None and num_members:
        results = outcome_values(pools, outcomes, labels=labels or {})
        loop = replace(summarise_loop(results, bootstrap), waves=wave_savings(outcomes))
        entries[-1:-1] = loop_entries(results, policy)  # before the oracle
    trained = with_trained_labels(pools, positive_frac)
    continuous = not all(np.isnan(pool.violation).all() for pool in pools)
    rows = selector_rows(entries, bootstrap)
    selected, by_mu = picks(pools, policy.lambda_), picks(pools, 0.0)
    return Evaluation(
        title=title or task,
        task=task,
        seed=seed,
        shuffle_seed=config.shuffle_seed,
        num_bootstrap=config.num_bootstrap,
        policy=policy.settings(),
        generators=tuple(sorted({item.candidate.generator for pool in pools for item in pool.candidates})),
        adapters=tuple(names),
        counts=_counts(pools),
        rows=tuple(rows),
        costs=cost_rows(selectors, rows, pools, prices=config.prices, bootstrap=bootstrap),
        energies=tuple(_energy_rows(trained, names, policy.lambda_, bootstrap)),
        pass_at_n=tuple(
            _pass_at_n(
                with_tolerance(pools, config.tolerance) if continuous else pools,
                lambda_=policy.lambda_,
                bootstrap=bootstrap,
            )
        )
        if num_members
        else (),
        tolerance=config.tolerance if continuous else None,
        sigma_auroc=sigma_auroc(selected, bootstrap) if num_members > 1 else NOTHING,
        selective=selective_accuracy(selected, bootstrap) if num_members > 1 else (),
        mu_sigma_auroc=sigma_auroc(by_mu, bootstrap) if num_members > 1 else NOTHING,
        mu_selective=selective_accuracy(by_mu, bootstrap) if num_members > 1 else (),
        theory=ensemble_theory(trained, bootstrap),
        difficulties=tuple(difficulties(pools, entries, bootstrap)),
        loop=loop,
        picks=tuple(
            PickPoint(mu=pick.mu, sigma=pick.sigma, correct=None if math.isnan(pick.correct) else pick.correct == 1)
            for pick in selected
            if not math.isnan(pick.mu)
        ),
        comparisons=tuple(comparisons(entries, bootstrap, seed)),
        dimensions=dimension_table(pools, by_part, bootstrap),
        violation_comparisons=tuple(violation_comparisons(entries, bootstrap, seed)),
        trust=trust(
            Stack.of(pools),
            Stack.of(validation) if validation else None,
            lambda_=policy.lambda_,
            bootstrap=bootstrap,
            seed=seed,
        ),
        decision=None
        if decided is None or fit is None
        else decision_study(decided, pools, fit=fit, bootstrap=bootstrap),
        stopping=tuple(stopping_rows(pools, num_bootstrap=config.num_bootstrap, seed=seed)),
        command=command_line() if command is None else command,
        versions=versions(),
    )


def selectors_of(
    pools: Sequence[EvaluatedPool],
    *,
    lambda_: float,
    adapters: Sequence[str],
    validation: Sequence[EvaluatedPool],
    decided: Decided | None = None,
) -> list[Selector]:
    """Every selector that these pools allow, also those that validation pools tune; ours and the oracle last."""
    selectors = standard_selectors(
        pools, lambda_=lambda_, adapters=adapters, best_generator=best_generator_of(validation)
    )
    tuned = [
        *length_controlled(validation),
        *learned_votes(validation),
        *agreement_selectors(pools, validation, lambda_=lambda_),
        *([] if decided is None else decided.selectors()),
        *peer_selectors(pools, validation),
    ]
    end = -2 if adapters else -1  # before ours and the oracle
    selectors[end:end] = tuned
    return selectors


def _adapter_names(adapters: Sequence[str], num_members: int) -> list[str]:
    # Fewer energies than names: some adapters were not trained, and we cannot know here which; better no name than
    # the wrong one.
    if len(adapters) == num_members:
        return list(adapters)
    return [f"member {index + 1}" for index in range(num_members)]


def _counts(pools: Sequence[EvaluatedPool]) -> Counts:
    written = [item for pool in pools for item in pool.candidates]
    return Counts(
        problems=len(pools),
        candidates=len(written),
        greedy=sum(len(pool.greedy) for pool in pools),
        failed=sum(len(pool.failed) for pool in pools),
        unparsed=sum(not item.report.parsed for item in written),
        unscored=sum(item.energies is None for item in written),
        unlabeled=sum(pool.num_unlabeled for pool in pools),
    )


def _energy_rows(
    pools: Sequence[EvaluatedPool], names: Sequence[str], lambda_: float, bootstrap: Bootstrap
) -> list[EnergyRow]:
    if not names:
        return []
    columns: dict[str, list[Floats]] = {
        f"adapter {name}": [
            pool.members[:, index] if pool.members.size else np.full(len(pool.correct), math.nan) for pool in pools
        ]
        for index, name in enumerate(names)
    }
    columns["mu"] = [pool.mu for pool in pools]
    columns["E"] = [pool_energies(pool, lambda_) for pool in pools]
    rows = []
    for name, energies in columns.items():
        joined = list(zip(pools, energies, strict=True))
        finite = [(pool, np.where(np.isfinite(energy), energy, math.nan)) for pool, energy in joined]
        rows.append(
            EnergyRow(
                name=name,
                pair_accuracy=bootstrap.mean(np.array([pair_accuracy(*item) for item in joined])),
                kendall_tau_b=bootstrap.mean(np.array([kendall_tau_b(*item) for item in joined])),
                energy_gap=bootstrap.mean(np.array([energy_gap(*item) for item in finite])),
                mean_correct=_class_mean(finite, 1.0, bootstrap),
                mean_incorrect=_class_mean(finite, 0.0, bootstrap),
            )
        )
    return rows


def _class_mean(found: Sequence[tuple[EvaluatedPool, Floats]], label: float, bootstrap: Bootstrap) -> Estimate:
    inside = [pool.in_pool & (pool.correct == label) & ~np.isnan(energy) for pool, energy in found]
    sums = np.array([energy[mask].sum() for (_, energy), mask in zip(found, inside, strict=True)])
    return bootstrap.ratio(sums, np.array([float(mask.sum()) for mask in inside]))


def _pass_at_n(pools: Sequence[EvaluatedPool], *, lambda_: float, bootstrap: Bootstrap) -> list[PassAtN]:
    largest = max(len(pool.candidates) for pool in pools)
    by_energy = np.stack([pass_at_n_by_energy(pool, lambda_, max_n=largest) for pool in pools])
    by_mu = np.stack([pass_at_n_by_energy(pool, 0.0, max_n=largest) for pool in pools])
    by_chance = np.stack([pass_at_n_by_chance(pool, max_n=largest) for pool in pools])
    return [
        PassAtN(
            n=n,
            by_energy=bootstrap.proportion(by_energy[:, n - 1]),
            by_mu=bootstrap.proportion(by_mu[:, n - 1]),
            by_chance=bootstrap.proportion(by_chance[:, n - 1]),
        )
        for n in _sizes(largest)
    ]


def _sizes(largest: int) -> list[int]:
    """Every size up to 8, then powers of two, then the largest."""
    return sorted(
        {*range(1, min(8, largest) + 1), *(2**power for power in range(4, 16) if 2**power < largest), largest}
    )
