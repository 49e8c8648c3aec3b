"""Trained ensembles on several backbones: finished runs over the same pools, next to each other.

    python benchmarks/trained_backbones.py minilm=runs/minilm mpnet=runs/mpnet qwen=runs/qwen

First table: the candidate of lowest mean energy, without constraints, next to the best author, and the posterior with
the energies, next to one without them; both are fitted on the run's own labelled problems and judged on its test
problems. Then the tables of ``ensemble_kinds``, whose base is the first run. Intervals: 95 %, percentile bootstrap over
problems, 2,000 times.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from ensemble_kinds import MemberEnergies, right_by_energy, tables
from reader_table import CONTEXT_WITHOUT, WITHOUT_ENERGIES, best_author, worth_of_author

from raydebm.config import parse_recipe
from raydebm.confounding.screen import screen
from raydebm.decision.evidence.fitting import LabelledPool, LabelledTable, fit_posterior
from raydebm.decision.evidence.groups import Floats
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.evidence.profiles import winners
from raydebm.evaluation.pools.pool import EvaluatedPool
from raydebm.evaluation.pools.stack import Stack
from raydebm.evaluation.report.table_cells import number, points, with_interval
from raydebm.evaluation.stats.intervals import Bootstrap
from raydebm.pipeline.context import TEST, VALIDATION
from raydebm.pipeline.pools import evaluated_pools
from raydebm.pipeline.runner import Pipeline
from raydebm.pipeline.stages.posterior import labelled_pools, out_of_bag
from raydebm.run.directory import RunDir

LAMBDA = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A finished run."""

    test: tuple[EvaluatedPool, ...]
    labelled: tuple[LabelledPool, ...]
    """What the posterior is fitted on."""

    @classmethod
    def of(cls, run_dir: str) -> "Trained":
        recipe = parse_recipe({**RunDir(run_dir).read_json("recipe.json"), "run_dir": run_dir}, where=run_dir)
        run = Pipeline(recipe=recipe)
        labelled = labelled_pools(evaluated_pools(run, VALIDATION)) + out_of_bag(run)
        return cls(test=tuple(evaluated_pools(run, TEST)), labelled=tuple(labelled))

    def energies(self) -> MemberEnergies:
        """Of the test problems' candidates."""
        scored = [each for pool in self.test for each in pool.candidates]
        return {each.candidate.candidate_id: each.energies.members for each in scored if each.energies is not None}

    def decided(self, *, with_energies: bool) -> Floats:
        """(P,): whether the posterior's selection is right."""
        table = LabelledTable.of(self.labelled)
        posterior: Posterior = (
            fit_posterior(table, lambda_=LAMBDA)
            if with_energies
            else fit_posterior(table, lambda_=LAMBDA, terms=WITHOUT_ENERGIES, context=CONTEXT_WITHOUT)
        )
        tested = LabelledTable.of(labelled_pools(self.test))
        rows = winners("posterior", tested.table, posterior.estimates(tested.table), posterior)
        return np.where(rows >= 0, tested.given_worth(posterior.reference)[rows], 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN_DIR")
    given = parser.parse_args()
    runs = {name: Trained.of(run_dir) for name, run_dir in (named.split("=", 1) for named in given.runs)}
    pools = next(iter(runs.values())).test
    for name, run in runs.items():
        if [pool.problem.problem_id for pool in run.test] != [pool.problem.problem_id for pool in pools]:
            raise SystemExit(f"{name}: its test problems are not those of the first run")
    print("\n".join(table(runs)), end="\n\n")
    print("\n".join(tables(pools, {name: run.energies() for name, run in runs.items()}, seed=0)))


def table(runs: Mapping[str, Trained]) -> list[str]:
    """One row per run."""
    lines = [
        "| energies of | lowest mean energy, % | minus best author, points | gap closed, % | AUROC within author "
        "| posterior with them, % | minus without, points |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, run in runs.items():
        stack = Stack.of(run.test)
        bootstrap = Bootstrap.of(len(run.test), num_bootstrap=2000, seed=0)
        right = right_by_energy(stack)
        labelled = labelled_pools(run.test)
        author = worth_of_author(labelled, best_author(labelled))
        with_, without = (run.decided(with_energies=kept) for kept in (True, False))
        random = stack.by_chance()
        cells = (
            with_interval(bootstrap.proportion(right)),
            points(bootstrap.mean(right - author)),
            with_interval(bootstrap.ratio(right - random, stack.oracle() - random)),
            number(screen(run.test, lambda_=0.0, bootstrap=bootstrap).within_auroc),
            with_interval(bootstrap.proportion(with_)),
            points(bootstrap.mean(with_ - without)),
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    main()
