"""The posterior's decision on a finished run: fitted on its labelled validation problems, judged on its test problems.

    python benchmarks/decision_on_run.py runs/gsm8k-recorded runs/math-recorded

Prints every profile's accuracy with paired differences to the vote, the best author and argmin E, and for the chosen
profile AUROC and calibration of the confidence, accuracy on the most certain 80 %, and learned certainty beside it. The
run may be older than the posterior: only its tables are read. Training problems are taken too, without energies unless
the run scored them; the validation problems carry the weight of the energies' terms.
"""

import argparse
from collections.abc import Mapping

import numpy as np
from raydebm.config.decision import Profile

from raydebm.config import DecisionConfig, parse_recipe
from raydebm.decision.calibration.policy_fit import LabelledProblems, PolicyFit, fit_policy
from raydebm.decision.evidence.fitting import LabelledTable, competition_of
from raydebm.decision.evidence.profiles import PROFILES, winners
from raydebm.decision.guarantee.guarantee import certify_smallest
from raydebm.decision.table import Floats
from raydebm.evaluation.certainty.reliability import reliability
from raydebm.evaluation.certainty.signals import Signal, signal_rows
from raydebm.evaluation.report.document import ece_cells, number, points, with_interval
from raydebm.evaluation.stats.intervals import Bootstrap
from raydebm.pipeline.context import TEST, VALIDATION
from raydebm.pipeline.pools import calibrated_policy, evaluated_pools
from raydebm.pipeline.runner import Pipeline
from raydebm.pipeline.stages.posterior import labelled_pools, learned_from
from raydebm.run.directory import RunDir

MIN_COVERAGE = 0.9
"""Of the row "smallest": the smallest error that can be promised when so many problems are answered."""
PROMISES = (0.02, 0.05, 0.1, 0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dirs", nargs="+")
    parser.add_argument("--validation-only", action="store_true", help="do not learn from training problems")
    given = parser.parse_args()
    for run_dir in given.run_dirs:
        print("\n".join(section(run_dir, validation_only=given.validation_only)), flush=True)


def section(run_dir: str, *, validation_only: bool) -> list[str]:
    """Markdown about one run."""
    recipe = parse_recipe({**RunDir(run_dir).read_json("recipe.json"), "run_dir": run_dir}, where=run_dir)
    pipeline = Pipeline(recipe=recipe)
    test = evaluated_pools(pipeline, TEST)
    learned = evaluated_pools(pipeline, VALIDATION) if validation_only else learned_from(pipeline)
    fitted = fit_policy(
        LabelledProblems(
            pools=labelled_pools(learned),
            task=recipe.task.name,
            outcome="violation" if test.has_violations else "correct",
            competition=competition_of(pipeline.task),
        ),
        base=calibrated_policy(pipeline),
        config=DecisionConfig(),
        promises=PROMISES,
    )
    posterior = fitted.policy.posterior
    assert posterior is not None
    test_table = LabelledTable.of([pool for pool in labelled_pools(test) if pool.is_labelled])
    bootstrap = Bootstrap.of(len(test_table.pools), num_bootstrap=2000, seed=recipe.seed)
    estimates = posterior.estimates(test_table.table)
    chosen = {profile: winners(profile, test_table.table, estimates, posterior) for profile in PROFILES}
    given = test_table.given_worth(posterior.reference)
    worth = {profile: np.where(rows >= 0, given[rows], 0.0) for profile, rows in chosen.items()}
    confidence = {profile: np.where(rows >= 0, estimates.probability[rows], 0.0) for profile, rows in chosen.items()}
    weights = {**posterior.weights, **posterior.context_weights}
    return [
        f"## {recipe.name}\n",
        f"{fitted.num_problems} labelled problems, {len(test_table.pools)} test problems. Chosen profile: "
        f"**{fitted.policy.profile}**; answers are {posterior.competition}.\n",
        "Weights: " + ", ".join(f"{name} {value:.2f}" for name, value in weights.items()) + "\n",
        *(
            f"- {test.challenger} against {test.incumbent}: {test.wins} won, {test.losses} lost, p = {test.p_value:.3g}"
            f"{', replaces it' if test.replaced else ''}"
            for test in fitted.choice.tests
        ),
        "",
        "| selection | worth % | minus vote | minus best author | minus argmin E | AUROC | "
        "ECE | if perfect | 80 % most certain % |",
        "|---|---:|---:|---:|---:|---:|---:|---|---:|",
        *(_row(profile, confidence[profile], worth, bootstrap) for profile in PROFILES),
        "",
        *_promises(fitted, confidence[fitted.policy.profile], worth[fitted.policy.profile], bootstrap),
    ]


def _promises(fitted: PolicyFit, confidence: Floats, worth: Floats, bootstrap: Bootstrap) -> list[str]:
    """What the labelled problems certify, and what the test problems say of it."""
    lines = [
        "| promised | certified | threshold | coverage, labelled % | coverage, test % | mean loss, test % |",
        "|---:|---|---:|---:|---:|---:|",
    ]
    posterior = fitted.policy.posterior
    smallest = certify_smallest(
        fitted.confidence,
        1 - fitted.worth,
        min_coverage=MIN_COVERAGE,
        confidence=DecisionConfig().confidence,
        binary=posterior is None or posterior.outcome == "correct",
    )
    for promise in (*fitted.promises, smallest):
        tau = np.inf if promise.tau is None else promise.tau
        answered = confidence >= tau
        loss = bootstrap.proportion(np.where(answered, 1 - worth, np.nan))
        cells = (
            f"{promise.max_error:g}{' (smallest)' if promise is smallest else ''}",
            "yes" if promise.certified else f"no; {promise.more_problems or 'many'} more problems",
            "-" if promise.tau is None else f"{promise.tau:.3f}",
            f"{100 * promise.coverage:.1f}",
            with_interval(bootstrap.proportion(answered.astype(np.float64))),
            with_interval(loss),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _row(profile: Profile, confidence: Floats, worth: Mapping[Profile, Floats], bootstrap: Bootstrap) -> str:
    own = worth[profile]
    (signal,) = signal_rows([Signal("confidence", "", confidence)], own, bootstrap)
    calibration = reliability("confidence", "the selection is right", confidence, own, bootstrap)
    rivals: tuple[Profile, ...] = ("vote", "best_author", "energy")
    differences = [points(bootstrap.mean(own - worth[rival])) if rival != profile else "" for rival in rivals]
    cells = (
        with_interval(bootstrap.proportion(own)),
        *differences,
        number(signal.auroc),
        *ece_cells(calibration.ece),
        with_interval(signal.accuracy_at_80),
    )
    return f"| {profile} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
