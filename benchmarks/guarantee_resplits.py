"""Share of certified guarantees that hold, over many resplits of a finished run's labelled problems.

    python benchmarks/guarantee_resplits.py runs/gsm8k-recorded --errors 0.05 0.08 --sizes 100 200 400 --resplits 200

    python benchmarks/guarantee_resplits.py $RAYDEBM_DATA/reasoning_gym/pool_easy.jsonl.gz --errors 0.1 --sizes 500

Of a file of recorded answers (fields problem_id, model, sample, text, answer, correct), the only evidence is votes and
authors, because it has no energies.

Labelled problems that no adapter trained on (validation, test, and training problems out of bag) are split at random
into calibration and test. On the calibration part, posterior, profile and threshold are fitted, and the guarantee is
certified; on the test part, the share of wrong answers among those returned is compared with the guarantee. Two other
thresholds are measured for comparison: naive (the largest coverage with an error within the guarantee on the
calibration part, without a test) and hindsight (the same on the test part itself).
"""

import argparse
import json
import math
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from raydebm.config import DecisionConfig, parse_recipe
from raydebm.decision.calibration.policy_fit import PolicyFit, fit_policy
from raydebm.decision.evidence.fitting import given_worth
from raydebm.decision.evidence.profiles import winners
from raydebm.decision.policy import Policy
from raydebm.decision.table import Floats, PoolTable
from raydebm.errors import PoolError
from raydebm.identity import content_id
from raydebm.pipeline.context import TEST, TRAIN, VALIDATION
from raydebm.pipeline.pools import calibrated_policy, evaluated_pools
from raydebm.pipeline.runner import Pipeline
from raydebm.pipeline.stages.posterior import learned_from
from raydebm.records import Candidate, ConstraintReport, Label, Problem, ScoredCandidate, Verdict
from raydebm.run.directory import RunDir
from raydebm.user_files import read_json_lines

Row = dict[str, Any]
"""Results for one error and one number of calibration problems: share of resplits with a certified threshold, share
with a broken guarantee on the test part (of all, and of the certified ones), and mean coverage, counted as 0 where
nothing is certified."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="run directory, or a .jsonl.gz file of recorded answers")
    parser.add_argument("--errors", type=float, nargs="+", default=[0.05, 0.1])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 200])
    parser.add_argument("--resplits", type=int, default=200)
    parser.add_argument("--confidence", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figure", help="SVG file of the coverage by number of labelled problems")
    given = parser.parse_args()
    pools, base = recorded(given.source) if given.source.endswith(".gz") else load(given.source)
    print(f"{given.source}: {pools.num_pools} labelled problems, {'violation' if pools.has_violations else 'correct'}")
    rows = []
    for size in given.sizes:
        rows += resplits(pools, base, size=size, given=given)
        for row in rows[-len(given.errors) :]:
            print(json.dumps(row), flush=True)
    if given.figure:
        draw(rows, given.figure)


def draw(rows: Sequence[Row], path: str) -> None:
    """Plot the coverage of certified, naive and hindsight thresholds."""
    plt.rcParams["svg.hashsalt"] = "promises"
    figure, axes = plt.subplots(figsize=(7, 4))
    for index, error in enumerate(sorted({row["max_error"] for row in rows})):
        own = sorted((row for row in rows if row["max_error"] == error), key=lambda row: row["problems"])
        for what, style in (("coverage", "-o"), ("naive_coverage", "--"), ("hindsight_coverage", ":")):
            name = {"coverage": f"error at most {100 * error:g} %, certified"}.get(
                what, what.replace("_coverage", "") if index == 0 else None
            )
            values = [100 * row[what] for row in own]
            axes.plot([row["problems"] for row in own], values, style, color=f"C{index}", label=name)
    sizes = sorted({row["problems"] for row in rows})
    axes.set(xlabel="labelled problems", ylabel="problems answered, %", xscale="log", ylim=(0, 100))
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, ncol=2)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def pipeline_of(run_dir: str) -> Pipeline:
    """The pipeline of a run, which may have been moved to ``run_dir``."""
    recipe = RunDir(run_dir).read_json("recipe.json")
    return Pipeline(recipe=parse_recipe({**recipe, "run_dir": run_dir}, where=run_dir))


def load(run_dir: str) -> tuple[PoolTable, Policy]:
    """The labelled problems of a finished run, and its policy."""
    pipeline = pipeline_of(run_dir)
    used = {*pipeline.splits()[TEST], *(problem.problem_id for problem in learned_from(pipeline).problems)}
    pools = evaluated_pools(pipeline, VALIDATION, TRAIN, TEST)
    known = [place for place, problem in enumerate(pools.problems) if problem.problem_id in used]
    return pools.of_pools(known).with_worth(), calibrated_policy(pipeline)


def recorded(path: str) -> tuple[PoolTable, Policy]:
    """The problems of a file of recorded answers, without energies. Case and repeated blanks of answers are ignored."""
    candidates: dict[str, list[ScoredCandidate]] = {}
    labels: dict[str, Label] = {}
    for line, row in read_json_lines(path):
        name = content_id(row["problem_id"], row["model"], row["sample"], line)  # some samples occur twice
        key = None if row["answer"] is None else " ".join(str(row["answer"]).lower().split())
        candidate = Candidate(
            candidate_id=name, task="", problem_id=row["problem_id"], generator=row["model"], text=row["text"] or ""
        )
        penalty = math.inf if key is None else 0.0
        report = ConstraintReport(candidate_id=name, answer=key, vote_key=key, penalty=penalty)
        candidates.setdefault(row["problem_id"], []).append(
            ScoredCandidate(candidate=candidate, report=report, energies=None)
        )
        verdict = Verdict.CORRECT if row["correct"] else Verdict.INCORRECT
        labels[name] = Label(candidate_id=name, problem_id=row["problem_id"], verdict=verdict)
    problems = [Problem(task="", problem_id=name, prompt=name) for name in candidates]
    return PoolTable.of([*candidates.values()], problems=problems, labels=labels), Policy(max_passes=1)


def resplits(pools: PoolTable, base: Policy, *, size: int, given: argparse.Namespace) -> list[Row]:
    """One row per guaranteed error."""
    by_error: dict[float, list[tuple[bool, bool, float, bool, float, float]]] = {error: [] for error in given.errors}
    for split in range(given.resplits):
        order = np.random.default_rng([given.seed, size, split]).permutation(pools.num_pools)
        calibration, test = (pools.of_pools(part) for part in (order[:size], order[size:]))
        try:
            fitted = fit_policy(
                calibration,
                base=base,
                config=DecisionConfig(confidence=given.confidence),
                errors=tuple(given.errors),
            )
        except PoolError:
            continue
        confidence, worth = decided(fitted, test)
        for error, guarantee in zip(given.errors, fitted.guarantees, strict=True):
            tau = np.inf if guarantee.tau is None else guarantee.tau
            naive = lowest_threshold(fitted.confidence, 1 - fitted.worth, error)
            by_error[error].append(
                (
                    guarantee.certified,
                    risk(confidence, 1 - worth, tau) > error,
                    float((confidence >= tau).mean()),
                    risk(confidence, 1 - worth, naive) > error,
                    float((confidence >= naive).mean()),
                    float((confidence >= lowest_threshold(confidence, 1 - worth, error)).mean()),
                )
            )
    rows = []
    for error, results in by_error.items():
        means = np.array(results, dtype=np.float64).mean(axis=0)
        names = ("certified", "broken", "coverage", "naive_broken", "naive_coverage", "hindsight_coverage")
        row: Row = {"max_error": error, "problems": size, "resplits": len(results)}
        row |= zip(names, (round(float(value), 4) for value in means), strict=True)
        of_certified = [broken for certified, broken, *_ in results if certified]
        rows.append(row | {"broken_of_certified": round(float(np.mean(of_certified)), 4) if of_certified else None})
    return rows


def decided(fitted: PolicyFit, pools: PoolTable) -> tuple[Floats, Floats]:
    """Confidence and worth of the policy's selection by pool."""
    posterior = fitted.policy.posterior
    assert posterior is not None
    estimates = posterior.estimates(pools)
    chosen = winners(fitted.policy.profile, pools, estimates, posterior)
    confidence = np.where(chosen >= 0, estimates.probability[chosen], -np.inf)
    return confidence, np.where(chosen >= 0, given_worth(pools, posterior.reference)[chosen], 0.0)


def risk(confidence: Floats, losses: Floats, tau: float) -> float:
    """Mean loss of the answered problems; 0 if none is answered."""
    answered = confidence >= tau
    return float(losses[answered].mean()) if answered.any() else 0.0


def lowest_threshold(confidence: Floats, losses: Floats, error: float) -> float:
    """The threshold with the largest coverage at a mean loss of at most ``error`` on these problems."""
    order = np.argsort(-confidence, kind="stable")
    ranked = confidence[order]
    is_last = np.append(ranked[1:] != ranked[:-1], True)
    within = is_last & np.isfinite(ranked) & (np.cumsum(losses[order]) / np.arange(1, len(losses) + 1) <= error)
    return float(ranked[np.flatnonzero(within)[-1]]) if within.any() else float("inf")


if __name__ == "__main__":
    main()
