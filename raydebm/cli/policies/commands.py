"""`raydebm policies list | try | drop | promote | rollback | compare`: change the policy of a service in production."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from raydebm.cli.console import console, say
from raydebm.cli.parameters import decision_period, options_from
from raydebm.errors import ConfigError

if TYPE_CHECKING:
    from raydebm.decision.policy_history import PolicyHistory
    from raydebm.decisions.reader import Filter
    from raydebm.run.directory import RunDir

app = typer.Typer(
    help="Try, compare, promote and roll back policies of a service.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

RunOption = Annotated[str, typer.Option("--run-dir", help="The run that is served; a folder or a URL.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; kept in the history.")]


@app.command("list")
def list_policies(run_dir: RunOption = "runs/demo") -> None:
    """Show the policy in force, the one on trial, and every change."""
    from raydebm.decision.policy import policy_id

    history = _history(run_dir)
    first, second = history.first(), history.second()
    say(f"first: {policy_id(first)}, decides by {first.rule}")
    if second is None:
        say("second: none; `raydebm policies try POLICY.json` adds one")
    else:
        role = "a shadow" if second.percent == 0 else f"a canary for {second.percent:g} % of the problems"
        say(f"second: {second.version}, {role} since {_minute(second.time)}{_because(second.reason)}")
    changes = history.changes()
    if not changes:
        return
    table = Table(title="History, the newest change first", title_justify="left")
    for column in ("", "time", "change", "came into force", "was replaced", "by", "reason"):
        table.add_column(column)
    for change in reversed(changes):
        what = change.action if change.undoes is None else f"{change.action} of {change.undoes}"
        row = (str(change.number), _minute(change.time), what, change.version, policy_id(change.replaced))
        table.add_row(*row, change.by or "command line", change.reason)
    console.print(table)


@app.command("try")
def try_policy(
    policy: Annotated[Path, typer.Argument(help="Policy file, such as another run's calibration/policy.json.")],
    run_dir: RunOption = "runs/demo",
    percent: Annotated[
        float, typer.Option(help="Share of the problems that it answers, 0 to 100; 0: a shadow, which answers none.")
    ] = 0.0,
    reason: ReasonOption = "",
) -> None:
    """Try a second policy, as shadow or canary.

    It takes the place of the one that was on trial.
    """
    from raydebm.decision.policy_file import check_fits, policy_in
    from raydebm.tasks import task_of

    run = _run(run_dir)
    recipe, wanted = run.recipe(), policy_in(str(policy))
    check_fits(wanted, recipe, task_of(recipe.task), what=f"policy {str(policy)!r}")
    history = _history(run_dir)
    second = history.try_policy(wanted, percent=percent, reason=reason)
    role = "a shadow" if percent == 0 else f"a canary for {percent:g} % of the problems"
    say_changed(history, f"policy {second.version} is {role}.")


@app.command()
def drop(run_dir: RunOption = "runs/demo") -> None:
    """End the trial of the second policy."""
    history = _history(run_dir)
    history.drop()
    say_changed(history, "no policy is on trial any more.")


@app.command()
def promote(run_dir: RunOption = "runs/demo", reason: ReasonOption = "") -> None:
    """Make the second policy the first one.

    The replaced policy is kept in the history.
    """
    history = _history(run_dir)
    change = history.promote(reason=reason)
    say_changed(history, f"change {change.number}: policy {change.version} is in force.")


@app.command()
def rollback(run_dir: RunOption = "runs/demo", reason: ReasonOption = "") -> None:
    """Bring back the policy that the newest promotion replaced."""
    history = _history(run_dir)
    change = history.roll_back(reason=reason)
    say_changed(history, f"change {change.number}: policy {change.version} is in force again.")


@app.command()
@options_from(decision_period, "where")
def compare(
    run_dir: RunOption = "runs/demo",
    records: Annotated[
        str | None,
        typer.Option(
            help="Folder of stored decisions; default: records/ of the run. A service of several runs stores those of "
            "all in the first one's."
        ),
    ] = None,
    first: Annotated[
        str | None, typer.Option(help="Id of the first policy, with --second; default: the newest pair.")
    ] = None,
    second: Annotated[str | None, typer.Option(help="Id of the second policy.")] = None,
    *,
    task: Annotated[str | None, typer.Option(help="Task whose decisions count; default: the run's.")] = None,
    where: "Filter",
    margin: Annotated[float, typer.Option(help="Difference in right answers that is asked about, in (0, 1).")] = 0.05,
) -> None:
    """Test which of two policies is better, on decisions about one task that both of them made.

    Counts right and wrong answers by the reported outcomes. No generator is asked.
    """
    from raydebm.cli.policies.comparison import show_comparison
    from raydebm.decisions.paired import paired_decisions
    from raydebm.decisions.reader import DecisionReader
    from raydebm.evaluation.studies.policy_pairs import compare_policies
    from raydebm.tasks import task_of

    if not 0 < margin < 1:
        raise ConfigError(f"--margin must be between 0 and 1, got {margin:g}")
    if (first is None) != (second is None):
        raise ConfigError("give both --first and --second, or none of them; `raydebm policies list` has the ids")
    run = _run(run_dir)
    decided = task_of(run.recipe().task, task)
    reader = DecisionReader(records or run.uri("records"))
    pairs = paired_decisions(reader, lambda name: decided, where=replace(where, task=decided.name))
    versions = None if first is None or second is None else (first, second)
    show_comparison(compare_policies(pairs, versions=versions, margin=margin))


def say_changed(history: "PolicyHistory", words: str) -> None:
    """Ask running services to take the policies as they are now, and print the change with what becomes of it there."""
    from raydebm.serving.ray.policy_watch import LOOK_EVERY_S, LOOK_FAR_EVERY_S

    history.apply()
    say(
        f"{words} A running service looks every {LOOK_EVERY_S:g} seconds (every {LOOK_FAR_EVERY_S:g} where a run lies "
        "behind a URL) and takes it; a warning in its `/health` says where it cannot. One whose argument `policy` is "
        "set keeps that policy in force."
    )


def _run(run_dir: str) -> "RunDir":
    from raydebm.run.directory import RunDir

    return RunDir(run_dir).absolute()


def _history(run_dir: str) -> "PolicyHistory":
    from raydebm.decision.policy_history import PolicyHistory

    return PolicyHistory(_run(run_dir))


def _minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""
