"""Studies of several trainings: ``seeds``, ``reproduce``, ``confounding``."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raydebm.cli.console import console, say, show_table
from raydebm.cli.parameters import (
    OverridesArgument,
    RecordedOption,
    RetryOption,
    options_from,
    read_recipe,
    recipe_command,
)
from raydebm.cli.pipeline import pipeline_for
from raydebm.errors import ConfigError

if TYPE_CHECKING:
    from raydebm.config import Recipe


def _recipes_from(
    config: Annotated[list[Path], typer.Option("--config", "-c", help="Recipe file; repeatable, one run per recipe.")],
    task: Annotated[list[str] | None, typer.Option("--task", help="Run each recipe for this task; repeatable.")] = None,
    overrides: OverridesArgument = None,
    recorded: RecordedOption = None,
) -> "list[Recipe]":
    tasks: list[str | None] = [*task] if task else [None]
    return [read_recipe(file, name, None, overrides, recorded) for file in config for name in tasks]


@options_from(_recipes_from, "recipes")
def reproduce(
    recipes: "list[Recipe]",
    out: Annotated[str, typer.Option("--out", help="Folder of the report.")] = "runs/reproduction",
    transfer: Annotated[bool, typer.Option("--transfer", help="Also score each run with others' adapters.")] = False,
    transfer_problems: Annotated[
        int | None,
        typer.Option("--transfer-problems", min=1, help="Test problems of each run for --transfer; default: all."),
    ] = None,
    confounding: Annotated[
        bool, typer.Option("--confounding", help="Also run style ablation and style swap on every scorer.")
    ] = False,
    retry_failed: RetryOption = False,
) -> None:
    """Write every table and figure of the paper.

    Writes one report on the runs of all recipes and their variants. Missing stages are run first.
    """
    with ExitStack() as stack:
        pipelines = [
            stack.enter_context(pipeline_for(recipe, judges=True, retry_failed=retry_failed)) for recipe in recipes
        ]
        from raydebm.pipeline.studies.reproduction import reproduce as make_report
        from raydebm.run.directory import RunDir

        _, address = make_report(
            pipelines,
            run=RunDir(out).absolute(),
            with_transfer=transfer,
            transfer_problems=transfer_problems,
            with_confounding=confounding,
        )
        say(f"report: {address}")


@recipe_command
def seeds(
    recipe: "Recipe",
    num_seeds: Annotated[
        int | None,
        typer.Option(
            "--num-seeds",
            min=1,
            help="Number of seeds, counted up from the recipe's; default: 5, or 1 with --folds.",
        ),
    ] = None,
    seed_list: Annotated[str | None, typer.Option("--seeds", help="The seeds themselves, such as 0,1,2.")] = None,
    folds: Annotated[
        int | None,
        typer.Option("--folds", min=2, help="Number of folds; each is tested by a training on all others."),
    ] = None,
    retry_failed: RetryOption = False,
) -> None:
    """Train with several seeds, or in cross-validation.

    All trainings use the same candidates. The report has intervals over problems and the spread over trainings.
    """
    chosen = _chosen_seeds(recipe, num_seeds, seed_list, default=5 if folds is None else 1)
    with pipeline_for(recipe, own_candidates=False) as pipeline:  # each training has its own run directory
        from raydebm.evaluation.trainings import in_words, selector_table
        from raydebm.pipeline.studies.trainings import train_several

        summary, address = train_several(pipeline, seeds=chosen, folds=folds, retry_failed=retry_failed)
        console.print(in_words(summary))
        show_table(selector_table(summary))
        say(f"report: {address}")


def _chosen_seeds(recipe: "Recipe", num_seeds: int | None, seed_list: str | None, *, default: int) -> list[int]:
    """Seeds of ``--seeds``, or ``--num-seeds`` of them from the recipe's own on. Raises ConfigError if both options are
    given, or an entry is not an integer."""
    if seed_list is None:
        return [recipe.training_seed + index for index in range(num_seeds or default)]
    if num_seeds is not None:
        raise ConfigError("give --seeds or --num-seeds, not both")
    try:
        return [int(entry) for entry in seed_list.split(",")]
    except ValueError as error:
        raise ConfigError(f"--seeds must be whole numbers with commas between them, got {seed_list!r}") from error


@recipe_command
def confounding(
    recipe: "Recipe",
    repair: Annotated[
        bool, typer.Option("--repair", help="Refit the energy heads on balanced data, and test before and after.")
    ] = False,
) -> None:
    """Test whether the scorer recognises who wrote an answer.

    Screen, style ablation, and a style swap of the generators in `confounding.swap`.
    """
    with pipeline_for(recipe) as pipeline:
        from raydebm.pipeline.studies.confounding import confounding as make_report
        from raydebm.pipeline.studies.repair import repair_run

        if not repair:
            report, address = make_report(pipeline, on_step=say)
            console.print(report.summary())
            say(f"report: {address}")
            return
        repaired, address = repair_run(pipeline, on_step=say)
        console.print(repaired.summary())
        say(f"report: {address}")
        console.print(
            "Energies have another scale now. To calibrate and evaluate the repaired scorer, run `raydebm run` with "
            f"the same recipe and --run-dir {pipeline.run.uri('repair')}"
        )
