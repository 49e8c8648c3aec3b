"""The posterior's decision on a finished run: fitted on its labelled validation problems, judged on its test problems.

    python benchmarks/decision_on_run.py runs/gsm8k-recorded

Prints every profile's accuracy with paired differences to the vote, the best author and argmin E, and for the chosen
profile AUROC and calibration of the confidence, accuracy on the most certain 80 %, and learned certainty beside it. The
run may be older than the posterior: only its tables are read. Training problems are taken too, without energies unless
the run scored them; the validation problems carry the weight of the energies' terms.
"""

import argparse
from collections.abc import Mapping

import numpy as np

from raydebm.config import DecisionConfig, parse_recipe
from raydebm.decision.evidence import Floats
from raydebm.decision.fitting import LabelledTable
from raydebm.decision.policy_fit import fit_policy
from raydebm.decision.profiles import PROFILES, Profile, winners
from raydebm.distributed.policy_stage import has_violations, labelled_pools, out_of_bag
from raydebm.distributed.stages import TEST, VALIDATION, Pipeline
from raydebm.evaluation.confidence_calibration import confidence_calibration
from raydebm.evaluation.intervals import Bootstrap
from raydebm.evaluation.signals import Signal
from raydebm.evaluation.table_cells import number, percent, points, with_interval
from raydebm.evaluation.uncertainty import signal_rows
from raydebm.store import RunDir


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir")
    parser.add_argument("--validation-only", action="store_true", help="do not learn from training problems")
    given = parser.parse_args()
    recipe = parse_recipe({**RunDir(given.run_dir).read_json("recipe.json"), "run_dir": given.run_dir}, where="run")
    pipeline = Pipeline(recipe=recipe)
    validation, test = (pipeline.evaluated_pools(split) for split in (VALIDATION, TEST))
    is_violation = has_violations(validation)
    labelled = labelled_pools(validation) + ([] if given.validation_only else out_of_bag(pipeline))
    base = pipeline.policy()
    fitted = fit_policy(
        labelled,
        base=base,
        config=DecisionConfig(),
        task=recipe.task.name,
        outcome="violation" if is_violation else "correct",
    )
    posterior = fitted.policy.posterior
    assert posterior is not None
    found = LabelledTable.of([pool for pool in labelled_pools(test) if pool.is_labelled], base.lambda_)
    estimates = posterior.estimates(found.table)
    bootstrap = Bootstrap.of(len(found.pools), num_bootstrap=2000, seed=recipe.seed)
    chosen = {profile: winners(profile, found.table, estimates, posterior) for profile in PROFILES}
    worth = {profile: np.where(rows >= 0, found.cluster_worth[rows], 0.0) for profile, rows in chosen.items()}
    print(f"{given.run_dir}: {len(labelled)} labelled problems, {len(found.pools)} test problems")
    print(f"chosen profile: {fitted.policy.profile}; answers are {posterior.competition}")
    weights = {**posterior.weights, **posterior.context_weights}
    print("weights: " + ", ".join(f"{name} {value:.2f}" for name, value in weights.items()) + "\n")
    for outcome in fitted.choice.tests:
        print(f"- {outcome.challenger} against {outcome.incumbent}: {outcome.wins} won, {outcome.losses} lost, "
              f"p = {outcome.p_value:.3g}{', replaces it' if outcome.replaced else ''}")  # fmt: skip
    print(
        "\n| profile | worth % | minus vote | minus best author | minus argmin E | AUROC | ECE | 80 % most certain % |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for profile in PROFILES:
        confidence = np.where(chosen[profile] >= 0, estimates.probability[chosen[profile]], 0.0)
        print(_row(profile, confidence, worth, bootstrap))


def _row(profile: Profile, confidence: Floats, worth: Mapping[Profile, Floats], bootstrap: Bootstrap) -> str:
    own = worth[profile]
    (signal,) = signal_rows([Signal("confidence", "", confidence)], own, bootstrap)
    calibration = confidence_calibration("confidence", "the selection is right", confidence, own, bootstrap)
    rivals: tuple[Profile, ...] = ("vote", "best_author", "energy")
    differences = [points(bootstrap.mean(own - worth[rival])) if rival != profile else "" for rival in rivals]
    cells = (
        with_interval(bootstrap.proportion(own)),
        *differences,
        number(signal.auroc),
        number(calibration.ece),
        f"{percent(signal.accuracy_at_80)}",
    )
    return f"| {profile} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
