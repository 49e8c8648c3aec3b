"""Mean violation by model and dimension on the recorded TravelPlanner pool, as a Markdown page.

``python benchmarks/travelplanner_violations.py --data ../shared/data/travelplanner > docs/results/...``. Intervals are
95 %, percentile bootstrap over problems. A plan that was not delivered or cannot be read counts 1 in every dimension.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from raydebm.evaluation.stats.intervals import Bootstrap, Estimate
from raydebm.run.json_lines import read_json_lines
from raydebm.tasks.travelplanner import TravelPlanner, dimensions_of
from raydebm.tasks.travelplanner.database import VARIABLE, read_database
from raydebm.tasks.travelplanner.dimensions import DIMENSIONS, violation_score
from raydebm.tasks.travelplanner.official import Verdicts, evaluate
from raydebm.tasks.travelplanner.trip import trip_of

NUM_BOOTSTRAP = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One recorded plan."""

    model: str
    problem_id: str
    values: Mapping[str, float]
    """The eight dimensions and their mean, ``score``."""
    official: Verdicts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="../shared/data/travelplanner", help="folder with the pool and database/")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    plans = score_pool(Path(arguments.data))
    problem_ids = sorted({plan.problem_id for plan in plans})
    bootstrap = Bootstrap.of(len(problem_ids), num_bootstrap=NUM_BOOTSTRAP, seed=arguments.seed)
    print("\n".join(page(plans, problem_ids, bootstrap, seed=arguments.seed)))


def score_pool(folder: Path) -> list[Scored]:
    """Every recorded plan; problems without reference information are checked against the database."""
    os.environ[VARIABLE] = str((folder / "database").resolve())
    sandbox = read_database(os.environ[VARIABLE])
    task = TravelPlanner()
    problems = {
        problem.data["source_id"]: problem
        for split in ("train", "test")
        for problem, _ in task.load(split, source=str(folder))
    }
    plans = []
    for _, row in read_json_lines(str(folder / "pool_validation.jsonl.gz")):
        problem, plan = problems[row["problem_id"]], row["plan"]
        values = dimensions_of(problem, "" if plan is None else json.dumps(plan))
        if values is None:
            raise RuntimeError(f"{row['problem_id']}: nothing to check against")
        official = evaluate(trip_of(problem.data), plan if isinstance(plan, list) else None, sandbox)
        plans.append(
            Scored(
                model=row["model"],
                problem_id=row["problem_id"],
                values={**values, "score": violation_score(values)},
                official=official,
            )
        )
    return plans


def page(plans: Sequence[Scored], problem_ids: Sequence[str], bootstrap: Bootstrap, *, seed: int) -> Iterable[str]:
    models = sorted({plan.model for plan in plans}, key=lambda model: _mean(plans, model))
    command = f"python {shlex.join(sys.argv)} > docs/results/travelplanner_violations.md"
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    unread = sum(plan.values["parse"] > 0 for plan in plans)
    yield "# TravelPlanner: violations of the recorded plans by model and dimension"
    yield ""
    yield (
        f"{len(plans):,} recorded plans of {len(models)} models for {len(problem_ids)} validation problems (a folder "
        "of recorded data beside the checkout; sources in its `SOURCES.md`). Mean of each dimension in [0, 1], lower "
        f"is better, with its 95 % interval: percentile bootstrap over problems, {NUM_BOOTSTRAP} resamples, seed "
        f"{seed}. "
        f"{unread} plans were not delivered or cannot be read without guessing (`parse`); they count 1 in every "
        "dimension. Problems without reference information (easy ones) are checked against the database, whose flight "
        "table is a subset. What the dimensions mean: `docs/tasks/travelplanner.md`."
    )
    yield ""
    yield f"Command: `{command}` at commit {commit.stdout.strip()}."
    yield ""
    yield "Models differ in strategy and prompt as well as in strength, and in n: this is no ranking of models."
    yield ""
    yield "## Score and dimensions"
    yield ""
    columns = ("score", *DIMENSIONS)
    yield f"| model | plans | problems | {' | '.join(columns)} |"
    yield f"|---|---:|---:|{'---:|' * len(columns)}"
    for model in (*models, None):
        chosen = [plan for plan in plans if model in (None, plan.model)]
        cells = [_cell(_estimate(chosen, problem_ids, bootstrap, name)) for name in columns]
        num_problems = len({plan.problem_id for plan in chosen})
        yield f"| {model or 'all'} | {len(chosen):,} | {num_problems} | {' | '.join(cells)} |"
    yield ""
    yield "## Beside the official evaluator"
    yield ""
    yield "Percent of plans, same intervals: score 0 (our verdict `correct`), and the official final pass."
    yield ""
    yield "| model | plans | score 0 | official final pass | both |"
    yield "|---|---:|---:|---:|---:|"
    for model in (*models, None):
        chosen = [plan for plan in plans if model in (None, plan.model)]
        zero = [float(plan.values["score"] == 0) for plan in chosen]
        final = [float(plan.official.passes) for plan in chosen]
        both = [a * b for a, b in zip(zero, final, strict=True)]
        cells = [_percent(_ratio(chosen, problem_ids, bootstrap, values)) for values in (zero, final, both)]
        yield f"| {model or 'all'} | {len(chosen):,} | {' | '.join(cells)} |"


def _mean(plans: Iterable[Scored], model: str) -> float:
    return float(np.mean([plan.values["score"] for plan in plans if plan.model == model]))


def _estimate(plans: Sequence[Scored], problem_ids: Sequence[str], bootstrap: Bootstrap, name: str) -> Estimate:
    return _ratio(plans, problem_ids, bootstrap, [plan.values[name] for plan in plans])


def _ratio(
    plans: Sequence[Scored], problem_ids: Sequence[str], bootstrap: Bootstrap, values: Sequence[float]
) -> Estimate:
    """Mean over plans; problems are what is resampled."""
    index = {problem_id: position for position, problem_id in enumerate(problem_ids)}
    sums, counts = np.zeros(len(problem_ids)), np.zeros(len(problem_ids))
    for plan, value in zip(plans, values, strict=True):
        sums[index[plan.problem_id]] += value
        counts[index[plan.problem_id]] += 1
    return bootstrap.ratio(sums, counts)


def _cell(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _percent(estimate: Estimate) -> str:
    value, low, high = (100 * (number or 0.0) for number in (estimate.value, estimate.low, estimate.high))
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"


if __name__ == "__main__":
    main()
