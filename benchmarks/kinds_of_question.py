"""Skill by kind of question against one skill per author, on a run's labelled problems, by five folds over problems.

    raydebm run --config configs/kor_bench_recorded.yaml --until labels run_dir=runs/kor
    python benchmarks/kinds_of_question.py runs/kor

Every problem is decided by the policy that ``fit_policy`` fits on the other folds, without energies, without kinds and
with them: both, and the difference paired by problem with a 95 % percentile interval (2,000 resamples, seed 0).
"""

import argparse
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from raydebm.config import DecisionConfig
from raydebm.decision.calibration.policy_fit import LabelledProblems, fit_policy
from raydebm.decision.evidence.fitting import LabelledPool, LabelledTable
from raydebm.decision.evidence.profiles import winners
from raydebm.decision.groups import Floats
from raydebm.decision.policy import Policy
from raydebm.records import ScoredCandidate, Verdict
from raydebm.run.directory import RunDir
from raydebm.scorer.pairs import text_key

Places = NDArray[np.intp]
ERRORS = (0.05, 0.1, 0.2)


@dataclass(frozen=True, slots=True)
class Decided:
    """By problem: worth of the selected answer, its confidence, and whether it is given out at each of ``ERRORS``."""

    right: Floats
    confidence: Floats
    given: Floats


def labelled(run: RunDir) -> list[LabelledPool]:
    labels, reports = {row.candidate_id: row for row in run.labels()}, {row.candidate_id: row for row in run.reports()}
    problems = {row.problem.problem_id: row.problem for row in run.problems()}
    worth = {Verdict.CORRECT: 1.0, Verdict.INCORRECT: 0.0, Verdict.UNLABELED: np.nan}
    by_problem: dict[str, list[ScoredCandidate]] = {name: [] for name in problems}
    for row in run.candidates():
        report, kind = reports[row.candidate_id], problems[row.problem_id].kind
        by_problem[row.problem_id].append(ScoredCandidate(candidate=row, report=report, energies=None, kind=kind))
    pools = (
        LabelledPool(
            problem_id=name,
            candidates=scored,
            worth=np.array([worth[labels[one.candidate.candidate_id].verdict] for one in scored]),
            text_key=text_key(problems[name].prompt),
        )
        for name, scored in by_problem.items()
    )
    return [pool for pool in pools if pool.is_labelled]


def decided(pools: Sequence[LabelledPool], folds: Sequence[int]) -> Decided:
    right, confidence, given = np.zeros(len(pools)), np.zeros(len(pools)), np.zeros((len(ERRORS), len(pools)))
    for fold in sorted(set(folds)):
        data = LabelledProblems(
            pools=[pool for pool, own in zip(pools, folds, strict=True) if own != fold], task="", outcome="correct"
        )
        fit = fit_policy(data, base=Policy(max_passes=1), config=DecisionConfig(), profile=None, promises=ERRORS)
        posterior, places = fit.policy.posterior, np.flatnonzero(np.array(folds) == fold)
        assert posterior is not None
        tested = LabelledTable.of([pools[int(place)] for place in places])
        estimates = posterior.estimates(tested.table)
        chosen = winners(fit.policy.profile or "posterior", tested.table, estimates, posterior)
        worth = np.nan_to_num(tested.given_worth(posterior.reference))
        right[places] = np.where(chosen >= 0, worth[chosen], 0.0)
        confidence[places] = np.where(chosen >= 0, estimates.probability[chosen], 0.0)
        for promise in fit.promises:
            if promise.certified and promise.tau is not None:
                given[ERRORS.index(promise.max_error), places] = confidence[places] >= promise.tau
    return Decided(right, confidence, given)


def auroc(of: Decided, at: Places) -> float:
    right, ranks = of.right[at] > 0.5, rankdata(of.confidence[at])
    pairs = right.sum() * (~right).sum()
    return float((ranks[right].sum() - right.sum() * (right.sum() + 1) / 2) / pairs)


def coverage(row: int) -> Callable[[Decided, Places], float]:
    return lambda of, at: float(100 * of.given[row, at].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir")
    pools = labelled(RunDir(parser.parse_args().run_dir))
    folds = [int(hashlib.sha256(f"outer:{pool.text_key}".encode()).hexdigest(), 16) % 5 for pool in pools]
    plain = [replace(pool, candidates=[replace(one, kind="") for one in pool.candidates]) for pool in pools]
    before, after = decided(plain, folds), decided(pools, folds)
    resamples = np.random.default_rng(0).integers(0, len(pools), (2000, len(pools)))
    figures: dict[str, Callable[[Decided, Places], float]] = {
        "right, %": lambda of, at: float(100 * of.right[at].mean()),
        "AUROC of confidence, %": lambda of, at: 100 * auroc(of, at),
        "Brier score, x 100": lambda of, at: float(100 * ((of.confidence - of.right)[at] ** 2).mean()),
        **{f"coverage at {error:.0%}, %": coverage(row) for row, error in enumerate(ERRORS)},
    }
    print(f"n = {len(pools)}")
    for name, figure in figures.items():
        low, high = np.quantile([figure(after, at) - figure(before, at) for at in resamples], [0.025, 0.975])
        one, other = (figure(of, np.arange(len(pools))) for of in (before, after))
        print(f"{name:<24} {one:7.2f} {other:7.2f} {other - one:+7.2f} [{low:+.2f}, {high:+.2f}]")


if __name__ == "__main__":
    main()
