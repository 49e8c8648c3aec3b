"""``raydebm import-decisions`` and ``import-pool``: stored decisions and other models' answers, as data of a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raydebm.cli.console import console, say
from raydebm.cli.parameters import (
    ConfigOption,
    OverridesArgument,
    ReporterOption,
    TaskOption,
    decision_period,
    options_from,
    read_recipe,
)
from raydebm.errors import ConfigError

if TYPE_CHECKING:
    from raydebm.decisions.reader import Filter


@options_from(decision_period, "where")
def import_decisions(
    records: Annotated[str, typer.Argument(help="Folder of stored decisions, such as runs/demo/records; or a URL.")],
    out: Annotated[str, typer.Option("--out", help="Run directory to write; must hold no run.")],
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="Recipe for the training; default: recipe.json next to the records."),
    ] = None,
    *,
    where: "Filter",
    by: ReporterOption = None,
    test_frac: Annotated[float, typer.Option(help="Share of the problems that are for testing.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Seed of the split into training and testing.")] = 0,
) -> None:
    """Turn decisions with outcomes into a run for training.

    Writes a run directory with problems, candidates and labels.
    """
    from raydebm.config import load_recipe
    from raydebm.decision_import import labelled_decisions
    from raydebm.decision_import.run_folder import write_run
    from raydebm.decisions.reader import DecisionReader
    from raydebm.run.addresses import resolved
    from raydebm.tasks import task_of

    recipe = load_recipe(_recipe_next_to(records) if config is None else config)
    task = task_of(recipe.task)
    where = where.model_copy(update={"task": task.name})
    labelled = labelled_decisions(DecisionReader(records), lambda name: task, where=where, by=by or None)
    target = resolved(out)
    summary = write_run(labelled, recipe=recipe, out=target, test_frac=test_frac, seed=seed)
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


def _recipe_next_to(records: str) -> Path:
    """Raises ConfigError where the records folder stands in no run directory of this machine."""
    from raydebm.run.addresses import is_url

    if not is_url(records):
        recipe = Path(records).resolve().parent / "recipe.json"
        if recipe.exists():
            return recipe
    raise ConfigError(f"there is no recipe.json next to {records!r}; give --config")


def import_pool(
    pool: Annotated[Path, typer.Argument(help="JSON lines with problem_id, model, text; or raydebm Parquet.")],
    config: ConfigOption,
    out: Annotated[Path, typer.Option("--out", help="Parquet file to write, named *.parquet.")],
    task: TaskOption = None,
    model: Annotated[list[str] | None, typer.Option("--model", help="Keep only this model; repeatable.")] = None,
    text_field: Annotated[
        list[str] | None, typer.Option("--text-field", help="Field of a line that holds the answer; repeatable.")
    ] = None,
    overrides: OverridesArgument = None,
) -> None:
    """Turn recorded answers of other models into candidates.

    The file that is written is a pool for `recorded` generators.
    """
    from raydebm.generators.pool_files import PARQUET, TEXT_FIELDS
    from raydebm.generators.recorded import import_pool as read_pool
    from raydebm.run.folder import Folder
    from raydebm.run.tables import CANDIDATES
    from raydebm.tasks import task_of
    from raydebm.user_files.writing import writing

    if out.is_dir():
        raise ConfigError(f"--out {str(out)!r} is a folder; give a file in it, such as {str(out / 'pool.parquet')!r}")
    if out.suffix != PARQUET:
        raise ConfigError(f"--out must end in {PARQUET}, by which a pool's reader knows it, got {str(out)!r}")
    recipe = read_recipe(config, task, None, overrides)
    plugin = task_of(recipe.task)
    problems = [
        problem
        for source in (recipe.task.train, recipe.task.test)
        for problem, _ in plugin.load(source.split, source=source.source, seed=recipe.seed)
    ]
    candidates = read_pool(
        str(pool), task=recipe.task.name, problems=problems, models=model, text_fields=text_field or TEXT_FIELDS
    )
    with writing(out):
        Folder(str(out.parent)).write_records(CANDIDATES, candidates, out.name)
    failed = sum(candidate.error is not None for candidate in candidates)
    say(f"{len(candidates)} candidates ({failed} with an error) written to {out}")
