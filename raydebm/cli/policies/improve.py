"""``raydebm improve``: thresholds and scorer made again with what users reported, and compared with those in force."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from raydebm.cli.console import say
from raydebm.cli.pipeline import pipeline_for
from raydebm.errors import ConfigError, PoolError

if TYPE_CHECKING:
    from raydebm.decision_import.improvement_round import ImprovementPlan
    from raydebm.decision_import.version_trial import VersionTrial
    from raydebm.decisions.reader import DecisionReader

LEAST = 20
"""Fewer outcomes on either side say next to nothing: of 20, an interval of a share is about 40 points wide."""


def improve(
    run_dir: Annotated[str, typer.Option("--run-dir", help="The run that is served.")] = "runs/demo",
    decisions: Annotated[
        str | None, typer.Option(help="Folder of stored decisions; default: records/ of the run.")
    ] = None,
    by: Annotated[list[str] | None, typer.Option("--by", help="Only reports by this name; repeatable.")] = None,
    min_outcomes: Annotated[
        int, typer.Option(min=3, help="Outcomes about new problems that are needed to learn from, and to compare on.")
    ] = LEAST,
    policy_only: Annotated[bool, typer.Option("--policy-only", help="Train no scorer.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
) -> None:
    """Learn from outcomes, and offer what is not worse.

    Chooses the thresholds again and trains the scorer again on old and new problems; both are compared with the version
    in force on outcomes that are held out. The policy goes on trial as a shadow, the scorer into a run directory.
    """
    from raydebm.decision_import.improvement_round import plan_improvement
    from raydebm.decisions.reader import DecisionReader
    from raydebm.pipeline.writing_lock import write_lock
    from raydebm.run.directory import RunDir

    run = RunDir(run_dir).absolute()
    run.recipe()  # a lock would make the folder of a run that is not there
    reader = DecisionReader(decisions or run.uri("records"))
    with nullcontext() if dry_run else write_lock(run, option="--run-dir"):
        plan = plan_improvement(run, reader, by=tuple(by) if by else None, least=min_outcomes)
        for line in plan_lines(plan, policy_only=policy_only):
            say(line)
        if not dry_run:
            _make(plan, reader, policy_only=policy_only)


def _make(plan: "ImprovementPlan", reader: "DecisionReader", *, policy_only: bool) -> None:
    """Make and compare the versions of a round, offer what is not worse, and report."""
    from raydebm.decision_import.improvement_round import finish

    policy = _policy_trial(plan, reader)
    scorer = None if policy_only else _scorer_trial(plan)
    if policy is not None:
        _offer_policy(plan, policy)
    if scorer is not None:
        _offer_scorer(plan, scorer)
    finish(plan, policy=policy, scorer=scorer)
    say(f"report: {_write_report(plan, policy, scorer)}")


def plan_lines(plan: "ImprovementPlan", *, policy_only: bool) -> Iterator[str]:
    """What a round is made of and what it will do, in words."""
    outcomes = plan.outcomes
    yield (
        f"{outcomes.reported:,} decisions with an outcome: {len(outcomes.learned):,} about new problems are learned "
        f"from, {len(outcomes.held_out):,} are held out to compare on; left out are {outcomes.known:,} about problems "
        f"that the run has, {outcomes.repeated:,} that were decided again later, {outcomes.contradictory:,} that "
        f"contradict themselves and {outcomes.spent:,} that had a part in the policy in force or were scored by "
        "another ensemble"
    )
    trained = "" if policy_only else ", and the scorer is trained on old and new problems"
    yield f"round {plan.number}: thresholds are chosen again{trained}, in {plan.folder.root}"


def _policy_trial(plan: "ImprovementPlan", reader: "DecisionReader") -> "VersionTrial | None":
    """None where the thresholds cannot be chosen again, or stay as they are; the reason is told."""
    from raydebm.decision.policy import policy_id
    from raydebm.decision_import.improvement_round import recalibrated
    from raydebm.decision_import.version_trial import trial_of

    try:
        policy = recalibrated(plan, reader)
    except (ConfigError, PoolError) as error:
        say(f"the thresholds stay: {error}")
        return None
    if policy_id(policy) == policy_id(plan.policy):
        say("the thresholds stay: the outcomes lead to the same ones")
        return None
    return trial_of(plan.outcomes.held_out, old=plan.policy, new=policy)


def _scorer_trial(plan: "ImprovementPlan") -> "VersionTrial":
    """Train, score and calibrate in the round's folder, and compare."""
    from raydebm.decision.policy_file import policy_in_force
    from raydebm.decision_import.improvement_round import write_improved_run
    from raydebm.decision_import.version_trial import trial_of
    from raydebm.decisions.stored_replay import OtherEnsemble
    from raydebm.run.ensemble_file import read_ensemble_file, reasoning_of
    from raydebm.scorer.ensemble import EnsembleScorer

    recipe = write_improved_run(plan)
    with pipeline_for(recipe, own_candidates=False) as pipeline:
        pipeline.make("calibration")
        scorer = EnsembleScorer.load(plan.folder.uri("scorer"), dtype=plan.folder.scoring_type(recipe.scorer.dtype))
        ensemble = OtherEnsemble(scorer=scorer, reasoning=reasoning_of(read_ensemble_file(plan.folder.uri("scorer"))))
        return trial_of(plan.outcomes.held_out, old=plan.policy, new=policy_in_force(plan.folder), ensemble=ensemble)


def _offer_policy(plan: "ImprovementPlan", trial: "VersionTrial") -> None:
    """Put the policy on trial as a shadow, unless it is worse or another one is on trial."""
    from raydebm.cli.policies.commands import say_changed
    from raydebm.decision.policy_history import PolicyHistory

    history, path = PolicyHistory(plan.run), plan.folder.uri("policy.json")
    if trial.is_worse:
        say("the policy with thresholds chosen again is worse on held-out outcomes, so it is not tried")
    elif (second := history.second()) is not None:
        say(f"policy {second.version} is on trial already and stays there; `raydebm policies try {path}` replaces it")
    else:
        second = history.try_policy(trial.policy, percent=0.0, reason=f"improve, round {plan.number}")
        say_changed(
            history,
            f"policy {second.version} is tried as a shadow, which answers no request; `raydebm policies compare` "
            "judges it on live outcomes, `raydebm policies promote` puts it in force.",
        )


def _offer_scorer(plan: "ImprovementPlan", trial: "VersionTrial") -> None:
    if trial.is_worse:
        say(f"the scorer of {plan.folder.root} is worse on held-out outcomes; keep the one in force")
        return
    say(
        "a shadow decides from the energies of the scorer in force, so another scorer cannot be tried as one; serve it "
        f"by `raydebm serve --run-dir {plan.folder.root}`, or exchange it in the running service: user_config with "
        f"checkpoint {plan.folder.uri('scorer')} and policy {plan.folder.uri('calibration', 'policy.json')}"
    )


def _write_report(plan: "ImprovementPlan", policy: "VersionTrial | None", scorer: "VersionTrial | None") -> str:
    """Write the report of a round; returns its address."""
    from raydebm.cli.policies.comparison import comparison_lines, comparison_rows
    from raydebm.evaluation.provenance import command_line
    from raydebm.evaluation.report.document import ReportDocument
    from raydebm.evaluation.report.table_cells import Table

    named = {"Thresholds chosen again, the scorer in force": policy, "Scorer and policy made again": scorer}
    tables = [
        Table(
            title=title,
            caption=" ".join(comparison_lines(trial.comparison)),
            headers=("", "in force", "new", "difference", "p", "p, Holm"),
            rows=tuple(comparison_rows(trial.comparison)),
        )
        for title, trial in named.items()
        if trial is not None
    ]
    page = ReportDocument(
        title=f"Learning from outcomes: {plan.recipe.name}, round {plan.number}",
        summary=" ".join(plan_lines(plan, policy_only=scorer is None)),
        tables=tables,
        provenance={"command": command_line()},
    )
    return page.write(plan.folder, "improvement")
