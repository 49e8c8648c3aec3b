"""`raydebm import-decisions`: outcomes that users reported, as labelled problems for training."""

from pathlib import Path
from typing import Annotated

import typer

from raydebm.config import load_recipe
from raydebm.console import console
from raydebm.errors import ConfigError


def import_decisions(
    records: Annotated[str, typer.Argument(help="Folder of stored decisions, such as runs/demo/records; or a URL.")],
    out: Annotated[str, typer.Option("--out", help="Run directory to write; must hold no run.")],
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="Recipe for the training; default: recipe.json beside the records folder."),
    ] = None,
    since: Annotated[str | None, typer.Option(help="Only decisions at or after, such as 2026-01-31T00:00Z.")] = None,
    until: Annotated[str | None, typer.Option(help="Only decisions before.")] = None,
    by: Annotated[list[str] | None, typer.Option("--by", help="Only reports by this name; repeatable.")] = None,
    test_frac: Annotated[float, typer.Option(help="Share of the problems that are for testing.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Of the split into training and testing.")] = 0,
) -> None:
    """Turn decisions with outcomes into a run directory with problems, candidates and labels, ready for training."""
    from raydebm.decision_import import labelled_decisions
    from raydebm.decision_import.run_folder import write_run
    from raydebm.replay_command import decision_filter
    from raydebm.serving.decisions.reader import DecisionReader
    from raydebm.tasks import task_of

    recipe = load_recipe(_recipe_beside(records) if config is None else config)
    task = task_of(recipe.task)
    where = decision_filter(task.name, since, until)
    found = labelled_decisions(DecisionReader(records), lambda name: task, where=where, by=by or None)
    target = out if "://" in out else str(Path(out).resolve())
    summary = write_run(found, recipe=recipe, out=target, test_frac=test_frac, seed=seed)
    if summary.contradictory:
        console.print(
            f"{summary.contradictory} decisions were left out, because the reports about them contradict each other"
        )
    counted = ", ".join(f"{count:,} {verdict}" for verdict, count in summary.verdicts.items())
    console.print(
        f"{summary.decisions:,} decisions with an outcome: {summary.problems:,} problems ({summary.test_problems:,} "
        f"for testing, {summary.with_gold:,} with a correct answer), {summary.candidates:,} candidates ({counted})"
    )
    console.print(f"train on them: raydebm evaluate --config {target}/recipe.json", soft_wrap=True)


def _recipe_beside(records: str) -> Path:
    """Raises ConfigError where the records folder stands in no run directory of this machine."""
    if "://" not in records:
        found = Path(records).resolve().parent / "recipe.json"
        if found.exists():
            return found
    raise ConfigError(f"there is no recipe.json beside {records!r}; give --config")
