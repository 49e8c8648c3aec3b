"""Print the README's table rows for finished runs with folds.

    raydebm seeds --config configs/math_recorded.yaml --folds 5 run_dir=runs/math
    python benchmarks/results_table.py runs/math [runs/...]

The best model of a fold is the one that is right most often on the problems of the other folds; a missing answer counts
as wrong. The difference is that of the chosen profile from the better of the best model and the majority vote, paired
by problem, with the 95 % percentile interval over problems (2,000 resamples, seed 0). Violation scores are printed
unscaled; lower is better.
"""

import argparse
from collections import Counter
from pathlib import Path

import numpy as np
from guarantee_resplits import pipeline_of

from raydebm.evaluation.certainty.confidence import CHOSEN
from raydebm.evaluation.stats.intervals import Bootstrap, Floats
from raydebm.pipeline.pools import calibrated_policy
from raydebm.pipeline.stages.evaluation import read_evaluation
from raydebm.pipeline.studies.trainings import training_of

SEED = 0
RESAMPLES = 2000
RULES = ("random", "majority vote", CHOSEN, "oracle")


def values_of_fold(folder: Path) -> tuple[dict[str, Floats], str, bool]:
    """Values of every selector on the fold's test problems, the profile, and True if values are violation scores."""
    run = pipeline_of(str(folder))
    training = training_of(run, read_evaluation(run.run))
    if training.decision is None:
        raise SystemExit(f"{folder}: the policy has no posterior, so there is no chosen profile; see calibration/")
    has_violations = any(np.isfinite(entry.violation).any() for entry in training.entries)
    value = "violation" if has_violations else "correct"
    values = {entry.name: getattr(entry, value) for entry in training.entries}
    return values, calibrated_policy(run).profile, has_violations


def row_of(run: Path) -> str:
    """One row of the table, in Markdown."""
    folds = [values_of_fold(folder) for folder in sorted(run.glob("fold-*"))]
    if not folds:
        raise SystemExit(f"{run} has no folds; make them with `raydebm seeds --folds 5 run_dir={run}`")
    is_violation = folds[0][2]
    models = sorted({name for values, _, _ in folds for name in values if name.startswith("generator ")})
    # A missing answer is wrong: 0 correct, or a violation of 1.
    answers = [
        np.nan_to_num([values.get(name, np.full(len(values["random"]), np.nan)) for name in models], nan=is_violation)
        for values, _, _ in folds
    ]
    best_parts = []
    for index, own in enumerate(answers):
        means = np.concatenate(answers[:index] + answers[index + 1 :], axis=1).mean(axis=1)
        best_parts.append(own[means.argmin() if is_violation else means.argmax()])
    best = np.concatenate(best_parts)
    of = {name: np.concatenate([values[name] for values, _, _ in folds]) for name in RULES}
    vote, chosen = of["majority vote"], of[CHOSEN]
    rival = min(best, vote, key=np.mean) if is_violation else max(best, vote, key=np.mean)
    scale, digits = (1, 3) if is_violation else (100, 1)
    resamples = Bootstrap.of(len(vote), num_bootstrap=RESAMPLES, seed=SEED).weights[1:]

    def mean(values: Floats) -> str:
        return f"{scale * values.mean():.{digits}f}"

    def with_interval(values: Floats, sign: str = "") -> str:
        low, high = np.percentile(scale * (resamples @ values) / len(values), [2.5, 97.5])
        return f"{scale * values.mean():{sign}.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"

    profiles = Counter(profile for _, profile, _ in folds).most_common()
    cells = [
        run.name, f"{len(vote):,}", mean(of["random"]), mean(vote), mean(best),
        ", ".join(f"{name} ({count})" for name, count in profiles),
        with_interval(chosen), with_interval(chosen - rival, "+"), mean(of["oracle"]),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="run directories of `raydebm seeds --folds`")
    options = parser.parse_args()
    print("| pool | n | random | vote | best model | chosen profile (folds) | it has | difference | oracle |")
    print("|---|---:|---:|---:|---:|---|---:|---:|---:|")
    for run in options.runs:
        print(row_of(run))


if __name__ == "__main__":
    main()
