"""Probabilities of fields on a run's labelled problems, against simpler ones, and the share of guarantees that hold.

    raydebm run --config configs/travelplanner_recorded.yaml --until labels run_dir=runs/travelplanner
    python benchmarks/fields.py runs/travelplanner

Fields are those of the selected answers. Predictions are cross-fitted; energies are used only with ``--energies``.
Intervals are 2.5th and 97.5th percentiles over 2,000 resamples of the problems, seed 0. The guarantees are tested on
200 random halves of the problems.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from raydebm.config import DecisionConfig
from raydebm.decision.calibration.field_fit import FieldFit
from raydebm.decision.calibration.policy_fit import fit_policy
from raydebm.decision.evidence.fitting import competition_of
from raydebm.decision.policy import Policy
from raydebm.decision.table import Floats, PoolTable
from raydebm.pipeline.pools import assembled
from raydebm.records import ScoredCandidate
from raydebm.run.directory import RunDir
from raydebm.tasks import task_of

Places = NDArray[np.intp]
ERRORS = (0.01, 0.02, 0.05, 0.1)
BINS = 15
AIM = 0.03
"""Largest acceptable ECE."""


def labelled(run: RunDir, *, proofs: bool, energies: bool = False) -> PoolTable:
    """The labelled problems of a run. Works without a scorer."""
    reports = {row.candidate_id: row for row in run.reports()}
    if not proofs:
        for name, report in reports.items():
            reports[name] = replace(report, proof=None, violations=(), penalty=min(report.penalty, 0.0))
    known = {row.candidate_id: row.energies for row in run.energies()} if energies else {}
    problems = {row.problem.problem_id: row.problem for row in run.problems()}
    candidates = [
        ScoredCandidate(
            candidate=row,
            report=reports[row.candidate_id],
            energies=known.get(row.candidate_id),
            kind=problems[row.problem_id].kind,
        )
        for row in run.candidates()
    ]
    labels = {row.candidate_id: row for row in run.labels()}
    return assembled(problems.values(), candidates, labels=labels).with_worth()


def auroc(confidence: Floats, right: Floats) -> float:
    is_right, ranks = right > 0.5, rankdata(confidence)
    pairs = is_right.sum() * (~is_right).sum()
    return float((ranks[is_right].sum() - is_right.sum() * (is_right.sum() + 1) / 2) / pairs) if pairs else np.nan


def ece(confidence: Floats, right: Floats) -> float:
    bins = np.array_split(np.argsort(confidence, kind="stable"), BINS)
    return float(sum(abs((confidence[own] - right[own]).sum()) for own in bins) / len(right))


def brier(confidence: Floats, right: Floats) -> float:
    return float(((confidence - right) ** 2).mean())


FIGURES: Mapping[str, Callable[[Floats, Floats], float]] = {"AUROC": auroc, "ECE": ece, "Brier score": brier}


def chance(fit: FieldFit, *, draws: int = 2000) -> str:
    """ECE of exactly calibrated predictions, from outcomes that are sampled with the predicted confidences: mean, 95th
    percentile and share of at most ``AIM``, for independent fields, and with one random number per problem."""
    rng, owner = np.random.default_rng(0), np.unique(fit.owner, return_inverse=True)[1]
    cells = []
    for decided_by in (np.arange(len(fit.owner)), owner):
        drawn = (rng.random(decided_by.max() + 1)[decided_by] < fit.confidence for _ in range(draws))
        eces = [ece(fit.confidence, right.astype(np.float64)) for right in drawn]
        met = np.mean(np.array(eces) <= AIM)
        cells.append(f"{np.mean(eces):.3f}, {np.quantile(eces, 0.95):.3f}, {met:.0%}")
    return " | ".join(cells)


def of_problems(fit: FieldFit, chosen: Places) -> FieldFit:
    """The predictions on the chosen problems."""
    inside = np.isin(fit.owner, chosen)
    return replace(fit, owner=fit.owner[inside], confidence=fit.confidence[inside], right=fit.right[inside])


def resplits(fit: FieldFit, error: float, *, count: int = 200) -> str:
    certified, broken, rng = 0, 0, np.random.default_rng(0)
    for _ in range(count):
        half, other = (of_problems(fit, part) for part in np.array_split(rng.permutation(np.unique(fit.owner)), 2))
        tau = half.certify(error, 0.9).tau
        if tau is not None:
            has_any, losses = other.losses(tau)
            certified += 1
            broken += bool((has_any > 0).any() and losses[has_any > 0].mean() > error)
    return f"| {error:.0%} | {certified} of {count} | {broken} | {broken / count:.1%} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir")
    parser.add_argument("--without-proofs", action="store_true", help="leave out exact proofs and all constraints")
    parser.add_argument("--energies", action="store_true", help="use the run's energies")
    asked = parser.parse_args()
    run = RunDir(asked.run_dir)
    config = run.recipe().task
    fitted = fit_policy(
        labelled(run, proofs=not asked.without_proofs, energies=asked.energies),
        base=Policy(max_passes=1),
        config=DecisionConfig(),
        task=config.name,
        competition=competition_of(task_of(config)),
    )
    fit = fitted.fields
    assert fit is not None, "no answer has labelled fields"
    places = [np.flatnonzero(fit.owner == problem) for problem in np.unique(fit.owner)]
    drawn = np.random.default_rng(0).integers(0, len(places), (2000, len(places)))
    samples = [np.concatenate([places[problem] for problem in row]) for row in drawn]
    figures = f"{fit.right.mean():.1%} right, {fit.confidence.mean():.1%} expected"
    print(f"{len(places)} problems, {len(fit.right)} fields, {figures}; ", end="")
    whole = (fitted.worth > 1 - 1e-9).astype(np.float64)  # a violation score of 0
    print(f"selected answers: {whole.mean():.1%} right, AUROC {auroc(fitted.confidence, whole):.3f}\n")
    print("| probability of a field | AUROC | ECE | Brier score |\n|---|---:|---:|---:|")
    copied = fitted.confidence[fit.owner]
    rows = {"field": fit.confidence, "marginal": fit.marginal, "share": fit.share, "the answer's": copied}
    for name, confidence in rows.items():
        cells = []
        for figure in FIGURES.values():
            low, high = np.nanquantile([figure(confidence[own], fit.right[own]) for own in samples], [0.025, 0.975])
            cells.append(f"{figure(confidence, fit.right):.3f} [{low:.3f}, {high:.3f}]")
        print(f"| {name} | {' | '.join(cells)} |")
    print("\n| ECE of the field's | calibrated, independent fields | calibrated, one number per problem |")
    print(f"|---:|---:|---:|\n| {ece(fit.confidence, fit.right):.3f} | {chance(fit)} |")
    print("\n| error at most | certified | shown, % of the fields | wrong among them |\n|---:|---|---:|---:|")
    for error in ERRORS:
        tau = fit.certify(error, 0.9).tau
        shown = fit.confidence >= (np.inf if tau is None else tau)
        wrong = f"{1 - fit.right[shown].mean():.1%}" if shown.any() else "-"
        print(f"| {error:.0%} | {'no' if tau is None else f'from {tau:.3f}'} | {shown.mean():.1%} | {wrong} |")
    print("\n| guaranteed | certified on one half | broken on the other | share of all halves |\n|---:|---:|---:|---:|")
    for error in ERRORS[1:]:
        print(resplits(fit, error))


if __name__ == "__main__":
    main()
