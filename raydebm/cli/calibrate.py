"""`raydebm calibrate`: posterior, profile, thresholds and promise, from a run's labels or from what users reported."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raydebm.cli.console import console, show_promise
from raydebm.cli.parameters import (
    ConfigOption,
    OverridesArgument,
    RetryOption,
    RunDirOption,
    TaskOption,
    read_recipe,
)
from raydebm.cli.pipeline import pipeline_for
from raydebm.errors import ConfigError

if TYPE_CHECKING:
    from raydebm.config import Recipe
    from raydebm.decision.calibration.policy_fit import PolicyFit
    from raydebm.decision_import.sample import Origin, OutcomeSample
    from raydebm.run.directory import RunDir


def calibrate(
    config: ConfigOption,
    task: TaskOption = None,
    run_dir: RunDirOption = None,
    max_error: Annotated[
        str | None, typer.Option(help="Promise: largest share of wrong answers given out, or auto.")
    ] = None,
    confidence: Annotated[float | None, typer.Option(help="Probability with which the promise holds.")] = None,
    min_coverage: Annotated[
        float | None, typer.Option(help="Share of problems to answer, of --max-error auto.")
    ] = None,
    from_decisions: Annotated[
        str | None,
        typer.Option(help="Folder of stored decisions: choose thresholds and certify on what users reported."),
    ] = None,
    refit: Annotated[bool, typer.Option("--refit", help="Fit the posterior on the reported decisions, too.")] = False,
    by: Annotated[list[str] | None, typer.Option("--by", help="Only reports by this name; repeatable.")] = None,
    audited: Annotated[
        float | None, typer.Option(help="Share of all decisions that these reporters judged at random.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Only decisions at or after, such as 2026-01-31T00:00Z.")] = None,
    until: Annotated[str | None, typer.Option(help="Only decisions before.")] = None,
    retry_failed: RetryOption = False,
    overrides: OverridesArgument = None,
) -> None:
    """Choose profile and thresholds, and certify a promise.

    Fits the posterior first. All of it on labelled problems, or with --from-decisions on outcomes that users reported.
    """
    promise = {
        "decision.max_error": max_error,
        "decision.confidence": confidence,
        "decision.min_coverage": min_coverage,
    }
    settings = [f"{name}={value}" for name, value in promise.items() if value is not None]
    recipe = read_recipe(config, task, run_dir, [*(overrides or ()), *settings])
    if from_decisions is not None:
        from raydebm.cli.replay import decision_filter

        origin = _origin(recipe, where=decision_filter(None, since, until), by=by, audited=audited)
        _calibrate_from_decisions(recipe, from_decisions, origin, refit=refit)
        return
    given = {"--refit": refit, "--by": by, "--audited": audited, "--since": since, "--until": until}
    for name, value in given.items():
        if value:
            raise ConfigError(f"{name} is about reported outcomes; give --from-decisions with it")
    with pipeline_for(recipe, retry_failed=retry_failed) as pipeline:
        from raydebm.pipeline.policies import calibrated_policy, decision_fit

        pipeline.make("calibration")
        console.print_json(json.dumps(calibrated_policy(pipeline).settings()))
        show_promise(decision_fit(pipeline))


# ---- from reported outcomes ----------------------------------------------------------------------------------------


def _run_of(recipe: "Recipe") -> "RunDir":
    from raydebm.run.directory import RunDir

    return RunDir(recipe.resolved_run_dir)


def _origin(recipe: "Recipe", *, where: Any, by: list[str] | None, audited: float | None) -> "Origin":
    from raydebm.decision_import.sample import Origin
    from raydebm.run.ensemble import fingerprint_of, holds_ensemble, read_ensemble_file
    from raydebm.tasks import task_of

    run = _run_of(recipe)
    if not holds_ensemble(run.uri("scorer")):
        raise ConfigError(f"{run.uri('scorer')} holds no ensemble, so nothing can say which decisions it scored")
    return Origin(
        task=task_of(recipe.task),
        checkpoint=fingerprint_of(read_ensemble_file(run.uri("scorer"))),
        where=where,
        by=tuple(by) if by else None,
        audited=audited,
    )


def _calibrate_from_decisions(recipe: "Recipe", records: str, origin: "Origin", *, refit: bool) -> None:
    """Certify the run's policy on stored outcomes, write it to the run, and say what it rests on."""
    from raydebm.decision.policy_file import read_policy
    from raydebm.decision_import.recertify import recertified
    from raydebm.decision_import.sample import outcome_sample
    from raydebm.decisions.reader import DecisionReader
    from raydebm.run.fingerprints import current_manifest

    run = _run_of(recipe)
    policy = read_policy(run, recipe, origin.task)
    if current_manifest("energies", recipe, run) is None:
        raise ConfigError(
            f"{run.root} was made with other settings than this recipe's, or is not complete; give the recipe that it "
            f"was made with ({run.uri('recipe.json')})"
        )
    sample = outcome_sample(DecisionReader(records), origin)
    found = recertified(sample, policy, recipe.decision, refit=refit)
    _write(recipe, run, sample, found)
    console.print_json(json.dumps(found.policy.settings()))
    show_promise(run.read_json("calibration", "decision.json"))
    for line in _sample_lines(sample, found):
        console.print(line, markup=False, soft_wrap=True)


def _write(recipe: "Recipe", run: "RunDir", sample: "OutcomeSample", found: "PolicyFit") -> None:
    """What the calibration stage writes, the manifest last, so that what follows is made again."""
    from raydebm.decision.calibration.policy_fit import promise_rows, reliability_table
    from raydebm.decision_import.recertify import source_of
    from raydebm.run.fingerprints import new_manifest

    run.reopen("calibration")
    value = {
        **found.to_json(),
        "promises": promise_rows(found.promises),
        "reliability": reliability_table(found.confidence, found.worth),
        "outcomes": source_of(sample),
    }
    run.write_json(value, "calibration", "decision.json")
    run.write_json(found.policy.to_json(), "calibration", "policy.json")
    facts = {"decision": found.facts(), "outcomes": source_of(sample)}
    run.finish("calibration", new_manifest("calibration", recipe, run, facts=facts))


def _sample_lines(sample: "OutcomeSample", found: "PolicyFit") -> list[str]:
    """What the thresholds rest on, and how far to trust them."""
    first, last = sample.times
    lines = [
        f"{sample.reported:,} decisions with an outcome, {len(sample.decisions):,} counted, made from {first:%Y-%m-%d} "
        f"to {last:%Y-%m-%d}; {found.worth.mean():.1%} of their answers are right, at a mean confidence of "
        f"{_mean_confidence(found):.1%}"
    ]
    left_out = {
        "contradict themselves": sample.contradictory,
        "were scored by another ensemble": sample.other_ensemble,
        "are about a problem that was asked again later": sample.repeated,
        "are abstentions, which count only with --audited": sample.reviewed,
    }
    if any(left_out.values()):
        lines.append("left out: " + "; ".join(f"{count:,} {what}" for what, count in left_out.items() if count))
    if len(set((found.worth > 0.5).tolist())) == 1:
        lines.append("every counted answer has the same outcome, so that these say nothing about where the errors are")
    if sample.origin.audited is None:
        lines.append(
            "This holds for decisions like those that somebody reported on, and whoever reports decides which these "
            "are. To speak about all decisions, have a random share of them judged, abstentions included, and give it "
            "as --by and --audited."
        )
    return lines


def _mean_confidence(found: "PolicyFit") -> float:
    import numpy as np

    return float(np.where(np.isfinite(found.confidence), found.confidence, 0.0).mean())
