"""`raydebm calibrate`: policy and guarantee of a run, from its labels or from reported outcomes."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from raydebm.cli.console import console, say, show_guarantee
from raydebm.cli.parameters import (
    ReporterOption,
    RetryOption,
    SinceOption,
    UntilOption,
    decision_filter,
    options_from,
    recipe_command,
)
from raydebm.cli.pipeline import pipeline_for
from raydebm.errors import ConfigError

if TYPE_CHECKING:
    from raydebm.config import Recipe
    from raydebm.decision.calibration.policy_fit import PolicyFit
    from raydebm.decision.policy import Policy
    from raydebm.run.directory import RunDir
    from raydebm.service.feedback import OutcomeSample
    from raydebm.service.store.reader import Filter


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedOutcomes:
    """Stored decisions whose outcome reports replace labels, and the filters on both."""

    records: str
    """Folder of stored decisions."""
    by: tuple[str, ...] | None
    """Reporters whose reports count. None for all."""
    where: "Filter"


Asked = tuple["Recipe", "Recipe"]
"""A recipe, and the same recipe with the guarantee of the options."""


@recipe_command
def asked_of(
    recipe: "Recipe",
    max_error: Annotated[
        str | None,
        typer.Option(help="Guarantee at most this share of wrong answers, such as 0.05; auto: the smallest possible."),
    ] = None,
    confidence: Annotated[float | None, typer.Option(help="Probability with which the guarantee holds.")] = None,
    min_coverage: Annotated[
        float | None, typer.Option(help="Share of problems to answer at least, with --max-error auto.")
    ] = None,
    max_field_error: Annotated[
        float | None,
        typer.Option(help="Guarantee at most this share of wrong fields among those not flagged, in JSON answers."),
    ] = None,
) -> Asked:
    """Recipe of the command line, without and with the guarantee of the options."""
    from raydebm.config import changed_recipe

    guarantee = {
        "max_error": max_error,
        "confidence": confidence,
        "min_coverage": min_coverage,
        "max_field_error": max_field_error,
    }
    stated = {name: value for name, value in guarantee.items() if value is not None}
    return recipe, changed_recipe(recipe, {"decision": recipe.decision.model_dump(mode="json") | stated})


def reported_outcomes(
    from_decisions: Annotated[
        str | None,
        typer.Option(help="Folder of stored decisions: use their reported outcomes in place of the run's labels."),
    ] = None,
    by: ReporterOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
) -> ReportedOutcomes | None:
    """Reported outcomes to use in place of labels. None without ``--from-decisions``."""
    if from_decisions is not None:
        where = decision_filter(since=since, until=until)
        reporters = tuple(by) if by else None
        return ReportedOutcomes(records=from_decisions, by=reporters, where=where)
    for name, value in {"--by": by, "--since": since, "--until": until}.items():
        if value is not None:
            raise ConfigError(f"{name} selects reported outcomes; give --from-decisions too")
    return None


ForceOption = Annotated[bool, typer.Option("--force", help="Write the policy even if its guarantee was not certified.")]


@options_from(asked_of, "asked")
@options_from(reported_outcomes, "reported")
def calibrate(
    asked: Asked, reported: ReportedOutcomes | None, force: ForceOption = False, retry_failed: RetryOption = False
) -> None:
    """Choose profile and thresholds, and certify a guarantee.

    Fits the posterior first, on the run's labelled problems. With --from-decisions, only the thresholds are chosen, on
    outcomes that users reported. Options of the guarantee replace settings of the recipe; if their guarantee cannot be
    certified, the run's policy is unchanged and the exit code is 1.
    """
    if reported is not None:
        _calibrate_from_decisions(asked, reported, force=force)
        return
    recipe, with_guarantee = asked
    with pipeline_for(with_guarantee, retry_failed=retry_failed) as pipeline:
        from raydebm.pipeline.pools import calibrated_policy, decision_fit

        if recipe != with_guarantee:
            calibrated = pipeline.certify(recipe, force=force)
            if not (calibrated.is_certified or force):
                show_guarantee(calibrated.files.get("decision.json"))
                _leave_alone(pipeline.run)
        else:
            pipeline.make("calibration")
        show_calibrated(calibrated_policy(pipeline), decision_fit(pipeline))


def _leave_alone(run: "RunDir") -> NoReturn:
    say(
        f"Nothing is certified, so {run.uri('calibration', 'policy.json')} is unchanged; --force writes a policy that "
        "returns only proven answers."
    )
    raise typer.Exit(1)


def show_calibrated(policy: "Policy", fit: dict[str, Any] | None) -> None:
    """Print the policy in force, and ``calibration/decision.json``: the result of the last calibration, which may be of
    an older policy. None if no posterior was fitted."""
    from raydebm.decision.policy import policy_id

    console.print_json(json.dumps(policy.settings()))
    version = policy_id(policy)
    is_calibrated = policy.rule == "paper" if fit is None else fit["policy"] == version
    if not is_calibrated:
        name = "" if fit is None else f" {fit['policy']}"
        guarantee = "it guarantees nothing"
        if policy.guarantee is not None and policy.guarantee["certified"]:
            guarantee = f"it guarantees an error of at most {policy.guarantee['max_error']:g}"
        say(
            f"These are the settings of policy {version}: policy.json was replaced after the calibration; {guarantee}. "
            f"What follows was found for the calibrated policy{name}, and does not hold for the one in force. "
            "Remove calibration/manifest.json to calibrate again."
        )
    show_guarantee(fit)


# ---- from reported outcomes ----------------------------------------------------------------------------------------


def _calibrate_from_decisions(asked: Asked, reported: ReportedOutcomes, *, force: bool) -> None:
    """Certify the run's policy on reported outcomes, write it to the run, and describe the data."""
    from raydebm.decision.policy_file import read_policy
    from raydebm.run.directory import RunDir
    from raydebm.run.ensemble_file import holds_ensemble, read_ref
    from raydebm.run.fingerprints import why_not_current
    from raydebm.service.feedback import outcome_sample, recertified
    from raydebm.service.store.reader import DecisionReader
    from raydebm.tasks import task_of

    stated, recipe = asked
    run = RunDir(recipe.resolved_run_dir)
    scorer = run.uri("scorer")
    if not holds_ensemble(scorer):
        raise ConfigError(f"{scorer} contains no ensemble, so its decisions cannot be found")
    checkpoint = read_ref(scorer).fingerprint
    task = task_of(recipe.task)
    policy = read_policy(run, recipe, task)
    reason = why_not_current("energies", recipe, run)
    if reason is not None:
        raise ConfigError(
            f"{run.root}: the energies do not belong to this recipe: {reason}. Use the run's own recipe, or score "
            "again: run `raydebm run` with this one"
        )
    sample = outcome_sample(
        DecisionReader(reported.records), task, checkpoint=checkpoint, where=reported.where, by=reported.by
    )
    fit = recertified(sample, policy, recipe.decision)
    value = {**fit.decision_file(), "outcomes": sample.source}
    is_kept = fit.guarantee is not None and not fit.guarantee.certified and not force
    if not is_kept:
        _write(stated, run, fit, value)
        console.print_json(json.dumps(fit.policy.settings()))
    for line in _sample_lines(sample, fit):
        say(line)
    show_guarantee(value)
    if is_kept:
        _leave_alone(run)


def _write(recipe: "Recipe", run: "RunDir", fit: "PolicyFit", value: dict[str, Any]) -> None:
    """Write the files of the calibration stage. Its new manifest makes later stages run again."""
    from raydebm.pipeline.writing_lock import write_lock
    from raydebm.run.fingerprints import new_manifest

    facts = {"decision": fit.facts(), "outcomes": value["outcomes"]}
    with write_lock(run):
        run.reopen("calibration")
        run.write_json(value, "calibration", "decision.json")
        run.write_json(fit.policy.to_json(), "calibration", "policy.json")
        run.finish("calibration", new_manifest("calibration", recipe, run, facts=facts))


def _sample_lines(sample: "OutcomeSample", fit: "PolicyFit") -> list[str]:
    """Lines about the reported decisions behind the thresholds, and the limits of the guarantee."""
    import numpy as np

    first, last = sample.times
    confidence = float(np.where(np.isfinite(fit.confidence), fit.confidence, 0.0).mean())
    lines = [
        f"{sample.reported:,} decisions with an outcome, of which {len(sample.decisions):,} count, made from "
        f"{first:%Y-%m-%d} to {last:%Y-%m-%d}; {fit.worth.mean():.1%} of their answers are right, at a mean "
        f"confidence of {confidence:.1%}"
    ]
    left_out = {
        "contradict themselves": sample.contradictory,
        "were scored by another ensemble": sample.other_ensemble,
        "are about a problem that was asked again later": sample.repeated,
        "are abstentions, which do not count": sample.reviewed,
    }
    if any(left_out.values()):
        lines.append("left out: " + "; ".join(f"{count:,} {what}" for what, count in left_out.items() if count))
    if len(set((fit.worth > 0.5).tolist())) == 1:
        lines.append("every counted answer has the same outcome, so they say nothing about where the errors are")
    lines.append(
        "This holds for decisions like the reported ones, and users choose which ones they report. For a statement "
        "about all answers, have a random share of them judged under one name, and give that name as --by."
    )
    return lines
