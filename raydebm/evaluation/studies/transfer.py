"""Comparison of several scored runs: backbones, transfer between tasks, transfer between pools.

The runs are scored elsewhere (a checkpoint scored another task's pool); this module only compares them. All runs of one
target are compared on their common problems.

The paper's matrix is only plausible for selection by mu (0.0 % on TravelPlanner, 31 to 92 % on Knights & Knaves): the
constraint term is the target's own, and an exact one makes every source equal to the oracle. Selection by E is shown
too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from raydebm.decision.groups import Floats
from raydebm.decision.table import PoolTable, on_common_problems
from raydebm.evaluation.stats.intervals import NOTHING, Bootstrap, Estimate
from raydebm.evaluation.stats.significance import Comparison, compare, holm_adjusted
from raydebm.evaluation.studies.pool_size import of_votes

VOTE = "self-consistency"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoredRun:
    """Pools of one target, scored by one checkpoint."""

    source: str
    """Training data of the scorer, such as ``MuSR (ModernBERT)``."""
    target: str
    """Source of the scored candidates."""
    pools: PoolTable
    lambda_: float = 1.0
    """Lambda of the target's own policy."""
    in_domain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """Result of one way to select."""

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


def transfer(
    runs: Sequence[ScoredRun],
    *,
    title: str,
    refused: Sequence[RefusedCell] = (),
    num_bootstrap: int = 2000,
) -> Transfer:
    """Build the matrix of the runs. A pair without a run has no cell.

    Args:
        runs: Pools as scored by each source.
        title: Title of the matrix.
        refused: Pairs without a run because the comparison would not be fair.
        num_bootstrap: Number of resamples.

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
        bootstrap = Bootstrap.of(shared[0].num_pools, num_bootstrap=num_bootstrap, seed=0)
        correct: dict[str, Floats] = {}
        for run, pools in zip(group, shared, strict=True):
            if not pools.num_pools:
                continue
            correct[run.source] = pools.correct_at(pools.select(0.0))
            cells.append(_cell(run, pools, bootstrap))
            if target not in chance:
                chance[target] = bootstrap.proportion(pools.by_chance())
                votes[target] = bootstrap.proportion(_vote(pools))
        home = next((run.source for run in group if run.in_domain), group[0].source)
        target_comparisons = compare(correct, [(source, home) for source in correct], bootstrap=bootstrap, seed=0)
        comparisons += [_named(comparison, target) for comparison in target_comparisons]
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


def _named(comparison: Comparison, target: str) -> Comparison:
    return replace(comparison, one=f"{comparison.one} on {target}")


def _cell(run: ScoredRun, pools: PoolTable, bootstrap: Bootstrap) -> TransferCell:
    return TransferCell(
        source=run.source,
        target=run.target,
        in_domain=run.in_domain,
        by_mu=_selected(pools, 0.0, bootstrap),
        by_energy=_selected(pools, run.lambda_, bootstrap),
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


def _vote(pools: PoolTable) -> Floats:
    plain, _ = of_votes(pools, None, int(pools.sizes.max()), seed=0)
    return plain
