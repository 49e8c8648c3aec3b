"""Comparison of several scorers: backbones and other variants, transfer between tasks and pools, judges.

The pools were scored elsewhere, by checkpoints of the same or another task. All runs of one target are compared on
their common problems. The paper's transfer matrix is only plausible for selection by mu (0.0 % on TravelPlanner, 31 to
92 % on Knights & Knaves): the constraint term is the target's own, and an exact one makes every source equal to the
oracle. Selection by E is shown too.

Among variants with other adapters, the monolithic scorer (one adapter with as many parameters as the whole ensemble) is
the control of the paper's Proposition 2: its learnt constraints and learnt quality cannot be separated.

Agreement with baselines is Spearman's rank correlation, every score oriented so that higher is better. Its
interval resamples problems, because candidates of one problem are not independent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from raydebm.decision.table import Bools, Floats, PoolTable, on_common_problems
from raydebm.evaluation.selectors import MAJORITY, values_of
from raydebm.evaluation.stats.intervals import NOTHING, Bootstrap, Estimate, weighted_sums
from raydebm.evaluation.stats.significance import Comparison, compare, holm_adjusted
from raydebm.evaluation.studies.two_terms import variance_partition

VOTE = "self-consistency"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoredRun:
    """Pools of one target, scored by one checkpoint."""

    source: str
    """Training data of the scorer, such as ``MuSR (ModernBERT)``."""
    target: str
    pools: PoolTable
    lambda_: float = 1.0
    in_domain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    pass_at_1: Estimate
    lift: Estimate
    """pass@1 minus that of random choice, on the same problems."""
    mean_violation: Estimate
    sigma_auroc: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferCell:
    source: str
    target: str
    in_domain: bool
    by_mu: Selected
    """Selection by mu, the scorer's own contribution."""
    by_energy: Selected
    """Selection by E with the target's lambda and constraints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCell:
    """Source and target that are not compared, with the reason."""

    source: str
    target: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Matrix of sources and targets, with rows for random choice and the vote."""

    title: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    cells: tuple[TransferCell, ...]
    random: dict[str, Estimate]
    vote: dict[str, Estimate]
    comparisons: tuple[Comparison, ...]
    """Each source against the in-domain one of the same target (the first run if none is marked), by mu."""
    refused: tuple[RefusedCell, ...] = ()

    def cell(self, source: str, target: str) -> TransferCell | None:
        """Result of a source's scorer on a target. None if it was not measured."""
        return next((cell for cell in self.cells if (cell.source, cell.target) == (source, target)), None)

    def refusal(self, source: str, target: str) -> str | None:
        """Reason why a cell is refused. None if it is not."""
        same = (cell.reason for cell in self.refused if (cell.source, cell.target) == (source, target))
        return next(same, None)


def transfer(runs: Sequence[ScoredRun], *, title: str, refused: Sequence[RefusedCell] = ()) -> Transfer:
    """Build the matrix of the runs. A pair without a run has no cell.

    Args:
        runs: Pools as scored by each source.
        title: Title of the matrix.
        refused: Pairs without a run because the comparison would not be fair.

    Raises:
        ValueError: two runs have the same source and target.
    """
    if len({(run.source, run.target) for run in runs}) != len(runs):
        raise ValueError("two runs have the same source and target; give their sources different names")
    cells: list[TransferCell] = []
    comparisons: list[Comparison] = []
    chance: dict[str, Estimate] = {}
    votes: dict[str, Estimate] = {}
    for target in dict.fromkeys(run.target for run in runs):
        group = [run for run in runs if run.target == target]
        shared = on_common_problems([run.pools for run in group])
        bootstrap = Bootstrap.of(shared[0].num_pools, seed=0)
        correct: dict[str, Floats] = {}
        for run, pools in zip(group, shared, strict=True):
            if not pools.num_pools:
                continue
            correct[run.source] = pools.correct_at(pools.select(0.0))
            cells.append(
                TransferCell(
                    source=run.source,
                    target=target,
                    in_domain=run.in_domain,
                    by_mu=_selected(pools, 0.0, bootstrap),
                    by_energy=_selected(pools, run.lambda_, bootstrap),
                )
            )
            if target not in chance:
                chance[target] = bootstrap.proportion(pools.by_chance())
                votes[target] = bootstrap.proportion(values_of(MAJORITY, pools).correct)
        home = next((run.source for run in group if run.in_domain), group[0].source)
        target_comparisons = compare(correct, [(source, home) for source in correct], bootstrap=bootstrap, seed=0)
        comparisons += [replace(comparison, one=f"{comparison.one} on {target}") for comparison in target_comparisons]
    corrected = holm_adjusted([comparison.p_value for comparison in comparisons])
    comparisons = [replace(comparison, p_holm=holm) for comparison, holm in zip(comparisons, corrected, strict=True)]
    return Transfer(
        title=title,
        sources=tuple(dict.fromkeys([*(run.source for run in runs), *(cell.source for cell in refused)])),
        targets=tuple(dict.fromkeys([*(run.target for run in runs), *(cell.target for cell in refused)])),
        cells=tuple(cells),
        random=chance,
        vote=votes,
        comparisons=tuple(comparisons),
        refused=tuple(refused),
    )


def _selected(pools: PoolTable, lambda_: float, bootstrap: Bootstrap) -> Selected:
    picked = pools.select(lambda_)
    correct = pools.correct_at(picked)
    return Selected(
        pass_at_1=bootstrap.proportion(correct) if pools.num_members else NOTHING,
        lift=bootstrap.mean(correct - pools.by_chance()) if pools.num_members else NOTHING,
        mean_violation=bootstrap.mean(pools.violation_at(picked)),
        sigma_auroc=bootstrap.auroc(-pools.at(pools.sigma, picked), correct) if pools.num_members > 1 else NOTHING,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoredVariant:
    """Test pools scored by one scorer."""

    name: str
    pools: PoolTable
    lambda_: float
    backbone: str
    num_adapters: int
    num_parameters: int
    """Number of trained parameters, of adapters and heads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRow:
    name: str
    generators: tuple[str, ...]
    """Generators of the candidates that the scorer selects from and was trained on."""
    most: int
    backbone: str
    num_adapters: int
    num_parameters: int
    by_mu: Selected
    by_energy: Selected
    constraint_share: Estimate
    """Share of sigma squared that depends on E_constraint (``two_terms.variance_partition``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantStudy:
    title: str
    rows: tuple[VariantRow, ...]
    comparisons: tuple[Comparison, ...]
    """Each variant against the recipe's own scorer on their common problems, by mu and by E; and each scorer of one
    generator against those of several with as many candidates."""

    def comparison(self, one: str, other: str, by: str) -> Comparison | None:
        """Comparison of two scorers.

        Args:
            by: Selection by "mu" or "E".

        Returns:
            None if the comparison was not made.
        """
        wanted = (_named(one, by), _named(other, by))
        return next(
            (comparison for comparison in self.comparisons if (comparison.one, comparison.other) == wanted), None
        )


def _named(scorer: str, by: str) -> str:
    """Name of a scorer's selections by "mu" or "E" in comparisons."""
    return f"{scorer} by {by}"


def variant_study(variants: Sequence[ScoredVariant], *, title: str, seed: int) -> VariantStudy:
    """Measure scorers, the recipe's own one first.

    Raises:
        ValueError: a scorer has no pools.
    """
    rows = [_row(variant, seed=seed) for variant in variants]
    comparisons = [
        comparison for one, other in _pairs(rows) for comparison in _compared(variants[one], variants[other], seed=seed)
    ]
    corrected = holm_adjusted([comparison.p_value for comparison in comparisons])
    return VariantStudy(
        title=title,
        rows=tuple(rows),
        comparisons=tuple(
            replace(comparison, p_holm=holm) for comparison, holm in zip(comparisons, corrected, strict=True)
        ),
    )


def _pairs(rows: Sequence[VariantRow]) -> list[tuple[int, int]]:
    """Indices of the scorers to compare: each with the first, then those of one generator with those of several if
    their pools have the same size."""
    places = range(1, len(rows))
    several = [place for place in places if len(rows[place].generators) > 1]
    single = [place for place in places if len(rows[place].generators) == 1]
    of_one_size = [(one, other) for one in single for other in several if rows[one].most == rows[other].most]
    return [*((place, 0) for place in places), *of_one_size]


def _row(variant: ScoredVariant, *, seed: int) -> VariantRow:
    pools = variant.pools
    bootstrap = Bootstrap.of(pools.num_pools, seed=seed)
    partition = variance_partition(pools, lambda_=variant.lambda_, bootstrap=bootstrap)
    by_mu, by_energy = (_selected(pools, lambda_, bootstrap) for lambda_ in (0.0, variant.lambda_))
    return VariantRow(
        name=variant.name,
        generators=pools.authors,
        most=int(pools.sizes.max()),
        backbone=variant.backbone,
        num_adapters=variant.num_adapters,
        num_parameters=variant.num_parameters,
        by_mu=by_mu,
        by_energy=by_energy,
        constraint_share=NOTHING if partition is None else partition.constraint,
    )


def _compared(variant: ScoredVariant, base: ScoredVariant, *, seed: int) -> list[Comparison]:
    common = on_common_problems([base.pools, variant.pools])
    if not common[0].num_pools:
        return []
    values: dict[str, Floats] = {}
    for scorer, pools in zip((base, variant), common, strict=True):
        for by, lambda_ in (("mu", 0.0), ("E", scorer.lambda_)):
            values[_named(scorer.name, by)] = pools.correct_at(pools.select(lambda_))
    return compare(
        values,
        [(_named(variant.name, by), _named(base.name, by)) for by in ("mu", "E")],
        bootstrap=Bootstrap.of(common[0].num_pools, seed=seed),
        seed=seed,
    )


MINUS_MU, LABEL, VIOLATION = "-mu", "correct", "-violation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    one: str
    other: str
    spearman: Estimate
    """n is the number of problems."""
    num_candidates: int


def judge_agreement(pools: PoolTable, bootstrap: Bootstrap) -> tuple[Agreement, ...]:
    """Rank correlations of every pair of scores, and of every score with the labels. Empty without baselines."""
    if not pools.scores:
        return ()
    from scipy.stats import rankdata  # imported here because it is slow

    columns = {**pools.scores, MINUS_MU: -pools.mu, LABEL: pools.correct, VIOLATION: -pools.violation}
    agreements = []
    for one, other in combinations(columns, 2):
        known = ~(np.isnan(columns[one]) | np.isnan(columns[other]))
        if {one, other} == {LABEL, VIOLATION} or known.sum() < 3:
            continue
        x, y = np.zeros((2, len(known)))
        for centred, name in ((x, one), (y, other)):
            ranks = rankdata(columns[name][known])
            centred[known] = ranks - ranks.mean()
        moments = np.stack([pools.total(values) for values in (known, x, y, x**2, y**2, x * y)], axis=1)
        n, sx, sy, sxx, syy, sxy = weighted_sums(bootstrap.weights, moments).T
        with np.errstate(invalid="ignore", divide="ignore"):
            sampled = (n * sxy - sx * sy) / np.sqrt((n * sxx - sx**2) * (n * syy - sy**2))
        agreements.append(
            Agreement(
                one=one,
                other=other,
                spearman=bootstrap.interval(
                    np.where(np.isfinite(sampled), sampled, math.nan), int(pools.any(known).sum())
                ),
                num_candidates=int(known.sum()),
            )
        )
    return tuple(agreements)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedPicks:
    """Ratings of selections by another scorer, such as a judge: means over problems."""

    name: str
    paper: Estimate
    oracle: Estimate
    """Mean rating of the best candidates by label (lowest violation score, else correct), averaged over ties."""
    random: Estimate
    paper_minus_oracle: Estimate
    """Paired difference, over the problems in which both are rated."""


def rated_picks(pools: PoolTable, *, lambda_: float, bootstrap: Bootstrap) -> tuple[RatedPicks, ...]:
    """One row per other scorer. Problems with an unrated selection or best candidate are excluded from the measures
    that need it."""
    picked, best = pools.select(lambda_), _best_by_label(pools)
    rated = []
    for name, rating in pools.scores.items():
        paper, oracle = pools.at(rating, picked), pools.mean_of(rating, best)
        rated.append(
            RatedPicks(
                name=name,
                paper=bootstrap.mean(paper),
                oracle=bootstrap.mean(oracle),
                random=bootstrap.mean(pools.mean_of(rating)),
                paper_minus_oracle=bootstrap.mean(paper - oracle),
            )
        )
    return tuple(rated)


def _best_by_label(pools: PoolTable) -> Bools:
    """Candidates with the lowest violation score of the pool, else correct ones, shape (R,)."""
    violation = np.where(np.isnan(pools.violation), math.inf, pools.violation)
    lowest = pools.least(violation)[pools.pool_of_row]
    best: Bools = np.where(np.isfinite(lowest), violation == lowest, pools.correct == 1)
    return best
