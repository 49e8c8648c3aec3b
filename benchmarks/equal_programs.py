"""Programs that agree on a problem's examples: which one to give out, and whether others may be right, too.

    python benchmarks/equal_programs.py humaneval 4      # at most four programs of a model
    python benchmarks/equal_programs.py mbpp 2 150       # of the first 150 problems

The posterior is fitted on recorded pools of ``$RAYDEBM_DATA`` without energies, and decides each problem by the other
folds: docs/log/best_author_representative.md and docs/log/competing_answers.md.
"""

import gzip
import json
import os
import sys
from collections import defaultdict
from itertools import islice, product
from pathlib import Path
from typing import Any, get_args

import numpy as np

from raydebm.config import DecisionConfig
from raydebm.config.policy import Profile
from raydebm.decision.calibration.policy_fit import LabelledProblems, fit_policy
from raydebm.decision.evidence.fitting import LabelledPool, LabelledTable, cross_fit, fit_posterior
from raydebm.decision.evidence.posterior import Competition, Estimates
from raydebm.decision.evidence.profiles import winners
from raydebm.decision.policy import Policy
from raydebm.decision.sampling.checks import check_candidate
from raydebm.evaluation.certainty.reliability import reliability
from raydebm.evaluation.report.table_cells import ece_cells, number, points, with_interval
from raydebm.evaluation.stats.intervals import Bootstrap
from raydebm.records import Candidate, Problem, ScoredCandidate
from raydebm.tasks import get_task

TASK = get_task("taco")
PROFILES: tuple[Profile, ...] = ("vote", "best_author", "posterior")


def main() -> None:
    name, most, problems = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if sys.argv[3:] else None
    folder = Path(os.environ.get("RAYDEBM_DATA", "../shared/data")) / "code"
    rows: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    with gzip.open(folder / f"pool_{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            rows[row["problem_id"]][row["model"]].append(row)
    loaded = (problem for problem, _ in TASK.load("test", source=str(folder / f"problems_{name}.jsonl.gz")))
    known = sorted((each for each in loaded if each.data["source_id"] in rows), key=lambda each: each.problem_id)
    print(*report([_pool(problem, rows[problem.data["source_id"]], most) for problem in known[:problems]]), sep="\n")


def _pool(problem: Problem, rows: dict[str, list[dict[str, Any]]], most: int) -> LabelledPool:
    candidates, worth = [], []
    for model, written in rows.items():
        for index, row in enumerate(islice(written, most)):
            candidate = Candidate(
                candidate_id=f"{problem.problem_id}/{model}/{index}",
                task=TASK.name,
                problem_id=problem.problem_id,
                generator=model,
                text=row["code"],
                sample_index=index,
            )
            checked = check_candidate(TASK, problem, candidate)
            candidates.append(ScoredCandidate(candidate=candidate, report=checked, energies=None))
            worth.append(float(row["correct"]))
    return LabelledPool(problem_id=problem.problem_id, candidates=candidates, worth=np.array(worth))


def report(pools: list[LabelledPool]) -> list[str]:
    table, bootstrap = LabelledTable.of(pools), Bootstrap.of(len(pools), num_bootstrap=2000, seed=0)
    right = np.bincount(table.table.pool_of_cluster, table.cluster_worth > 0.5, len(pools))
    several = np.bincount(table.table.cluster_of_row) > 1
    mixed = several & (table.cluster_worth > 0) & (table.cluster_worth < 1)
    lines = [
        f"{len(pools)} problems, {sum(len(pool.candidates) for pool in pools)} programs. Of {(right > 0).sum()} "
        f"problems with a right one {(right > 1).sum()} have two different ones. Of {several.sum()} answers of "
        f"several programs {mixed.sum()} have right and wrong ones.\n",
        "| answers | profile | right, % | as any of its programs, % | difference, points | Brier | ECE | if perfect |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    rows = product(get_args(Competition), PROFILES)
    return [*lines, *(_row(table, competition, profile, bootstrap) for competition, profile in rows)]


def _row(table: LabelledTable, competition: Competition, profile: Profile, bootstrap: Bootstrap) -> str:
    crossed = cross_fit(table, lambda used: fit_posterior(table, lambda_=1.0, competition=competition, used=used))
    estimates, any_worth = Estimates(probability=crossed.probability, none=crossed.none), np.zeros(len(table.pools))
    for fold, posterior in enumerate(crossed.posteriors):
        selected = winners(profile, table.table, estimates, posterior)
        inside = (crossed.fold == fold) & (selected >= 0)
        any_worth[inside] = table.cluster_worth[selected[inside]]
    problems = LabelledProblems(pools=table.pools, task=TASK.name, outcome="correct", competition=competition)
    fit = fit_policy(problems, base=Policy(max_passes=1), config=DecisionConfig(), profile=profile)
    calibration = reliability("confidence", "right", np.maximum(fit.confidence, 0), fit.worth, bootstrap)
    cells = (
        with_interval(bootstrap.proportion(fit.worth)),
        with_interval(bootstrap.proportion(any_worth)),
        points(bootstrap.mean(fit.worth - any_worth)),
        number(calibration.brier),
        *ece_cells(calibration.ece),
    )
    return f"| {competition} | {profile} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
