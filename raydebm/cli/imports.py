"""``raydebm import-decisions``: stored decisions with reported outcomes as the data of a run."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raydebm.cli.console import console, say
from raydebm.cli.parameters import ReporterOption, decision_period, options_from
from raydebm.errors import ConfigError

if TYPE_CHECKING:
    from raydebm.service.store.reader import Filter


@options_from(decision_period, "where")
def import_decisions(
    records: Annotated[str, typer.Argument(help="Folder of stored decisions, such as runs/demo/records; or a URL.")],
    out: Annotated[str, typer.Option("--out", help="Run directory to write; must not contain a run.")],
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="Recipe of the training; default: recipe.json next to the records."),
    ] = None,
    *,
    where: "Filter",
    by: ReporterOption = None,
    test_frac: Annotated[float, typer.Option(help="Share of the problems used for testing.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Seed of the split into training and testing.")] = 0,
) -> None:
    """Turn decisions with reported outcomes into training data.

    Writes a run directory with problems, candidates, labels and a recipe, for `raydebm run`.
    """
    from raydebm.config import load_recipe
    from raydebm.records import Verdict
    from raydebm.run.addresses import resolved
    from raydebm.service.feedback import labelled_decisions, write_run
    from raydebm.service.store.reader import DecisionReader
    from raydebm.tasks import task_of

    recipe = load_recipe(_recipe_next_to(records) if config is None else config)
    task = task_of(recipe.task)
    where = where.model_copy(update={"task": task.name})
    labelled = labelled_decisions(DecisionReader(records), lambda name: task, where=where, by=by or None)
    target = resolved(out)
    made = write_run(labelled, recipe=recipe, out=target, test_frac=test_frac, seed=seed)
    if made.contradictory:
        console.print(
            f"{made.contradictory} decisions were left out, because the reports about them contradict each other"
        )
    verdicts = Counter(label.verdict for label in made.labels.values())
    counted = ", ".join(f"{verdicts[verdict]:,} {verdict}" for verdict in Verdict)
    console.print(
        f"{made.decisions:,} decisions with an outcome: {len(made.problems):,} problems ({len(made.test):,} "
        f"for testing, {len(made.golds):,} with a correct answer), {len(made.candidates):,} candidates ({counted})"
    )
    say(f"train on them: raydebm run --config {target}/recipe.json")


def _recipe_next_to(records: str) -> Path:
    """The recipe in the run directory that contains the records. Raises ConfigError if it is not on this machine."""
    from raydebm.run.addresses import is_url

    if not is_url(records):
        recipe = Path(records).resolve().parent / "recipe.json"
        if recipe.exists():
            return recipe
    raise ConfigError(f"there is no recipe.json next to {records!r}; give --config")
