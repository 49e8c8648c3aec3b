"""Several scored runs side by side: backbones, transfer between tasks, transfer between pools.

The runs come from elsewhere (a checkpoint scored another task's pool); here they are only compared. Every run of one
target is compared on the problems that all of them cover.

The paper's matrix can only mean selection by mu alone (0.0 % on TravelPlanner, 31 to 92 % on Knights & Knaves): the
constraint term is the target's own, and an exact one makes every source look like the oracle. Selection by E is
shown too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from raydebm.evaluation.pools.pool import EvaluatedPool, Floats, common_problems, of_problems
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.stats.intervals import NOTHING, Bootstrap, Estimate
from raydebm.evaluation.stats.significance import Comparison, compare, holm_adjusted
from raydebm.evaluation.studies.pool_size import of_votes

VOTE = "self-consistency"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoredRun:
    """The pools of one target as one checkpoint scored them."""

    source: str
    """What the scorer was trained on, such as ``MuSR (ModernBERT)``."""
    target: str
    """Whose candidates were scored."""
    pools: Sequence[EvaluatedPool]
    lambda_: float = 1.0
    """Lambda of the target's own policy."""
    in_domain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """What one way of selecting is worth."""

    pass_at_1: Estimate
    lift: Estimate
    """Minus random choice, on the same problems."""
    mean_violation: Estimate
    sigma_auroc: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferCell:
    source: str
    target: str
    in_domain: bool
    by_mu: Selected
    """Selection by mu alone: what the scorer itself brings along."""
    by_energy: Selected
    """Selection by E with the target's lambda and constraints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCell:
    """A source and a target that are not compared, and why."""

    source: str
    target: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A matrix of sources and targets, with random choice and the vote below it."""

    title: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    cells: tuple[TransferCell, ...]
    random: dict[str, Estimate]
    vote: dict[str, Estimate]
    comparisons: tuple[Comparison, ...]
    """Each source against the in-domain one of the same target (the first run where none is marked), by mu alone."""
    refused: tuple[RefusedCell, ...] = ()

    def cell(self, source: str, target: str) -> TransferCell | None:
        """What a source's scorer reaches on a target; None where that was not measured."""
        return next((cell for cell in self.cells if (cell.source, cell.target) == (source, target)), None)

    def refusal(self, source: str, target: str) -> str | None:
        """Why there is no such cell; None where it was not refused."""
        same = (cell.reason for cell in self.refused if (cell.source, cell.target) == (source, target))
        return next(same, None)


def transfer(
    runs: Sequence[ScoredRun],
    *,
    title: str,
    refused: Sequence[RefusedCell] = (),
    num_bootstrap: int = 2000,
    seed: int = 0,
) -> Transfer:
    """Build the matrix of the runs; a pair without a run has no cell.

    Args:
        runs: pools, as each source scored them.
        title: of the matrix.
        refused: pairs that have no run because the comparison would not be fair.
        num_bootstrap: resamples.
        seed: of the resamples.

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
        shared = common_problems([run.pools for run in group])
        bootstrap = Bootstrap.of(len(shared), num_bootstrap=num_bootstrap, seed=seed)
        correct: dict[str, Floats] = {}
        for run in group:
            stack = Stack.of(of_problems(run.pools, shared)) if shared else None
            if stack is None:
                continue
            correct[run.source] = stack.correct_at(stack.select(0.0))
            cells.append(_cell(run, stack, bootstrap))
            if target not in chance:
                chance[target] = bootstrap.proportion(stack.by_chance())
                votes[target] = bootstrap.proportion(_vote(stack))
        home = next((run.source for run in group if run.in_domain), group[0].source)
        target_comparisons = compare(correct, [(source, home) for source in correct], bootstrap=bootstrap, seed=seed)
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


def _cell(run: ScoredRun, stack: Stack, bootstrap: Bootstrap) -> TransferCell:
    return TransferCell(
        source=run.source,
        target=run.target,
        in_domain=run.in_domain,
        by_mu=_selected(stack, 0.0, bootstrap),
        by_energy=_selected(stack, run.lambda_, bootstrap),
    )


def _selected(stack: Stack, lambda_: float, bootstrap: Bootstrap) -> Selected:
    picked = stack.select(lambda_)
    correct = stack.correct_at(picked)
    return Selected(
        pass_at_1=bootstrap.proportion(correct) if stack.num_members else NOTHING,
        lift=bootstrap.mean(correct - stack.by_chance()) if stack.num_members else NOTHING,
        mean_violation=bootstrap.mean(stack.violation_at(picked)),
        sigma_auroc=bootstrap.auroc(-stack.at(stack.sigma(), picked), correct) if stack.num_members > 1 else NOTHING,
    )


def _vote(stack: Stack) -> Floats:
    """(P,): expected value of the majority vote."""
    plain, _ = of_votes(stack, np.ones(stack.present.shape), int(stack.sizes.max()), seed=0)
    return plain
