"""``raydebm init``, ``run``, ``validate`` and ``reference``: recipes and their runs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raydebm.cli import starter
from raydebm.cli.parameters import RetryOption, recipe_command
from raydebm.errors import ConfigError

if TYPE_CHECKING:
    from raydebm.config import Recipe

PACKAGED_RUN, OWN_RUN = b"      run_dir: demo ", b"      run_dir: runs/demo "
"""A line of the repository's serve_config.yaml, and its replacement for the run of the written recipe."""


def init(
    folder: Annotated[Path, typer.Argument(help="Folder to write to; created if missing.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Write a recipe, serve_config.yaml and cluster.yaml.

    The recipe runs offline, serve_config.yaml serves its run, and cluster.yaml starts a Ray cluster on AWS.
    """
    from raydebm.cli.console import say

    for file in write_starter(folder, force=force):
        say(f"wrote {file}")
    recipe = folder / starter.RECIPE.name
    say(f"plan it:  raydebm run --config {recipe} --dry-run")
    say(f"run it:   raydebm run --config {recipe}")
    say(f"serve it: RAY_ADDRESS=local serve run {folder / starter.SERVE_CONFIG.name}")


def write_starter(folder: Path, *, force: bool) -> list[Path]:
    """Write the starter files, and return their paths. Raises ConfigError if one exists and ``force`` is False, before
    any is written, or if the folder cannot be written."""
    from raydebm.user_files import writing

    targets = {folder / source.name: source.read_bytes() for source in starter.FILES}
    serve_config = folder / starter.SERVE_CONFIG.name
    targets[serve_config] = targets[serve_config].replace(PACKAGED_RUN, OWN_RUN)
    existing = [target.name for target in targets if target.exists()]
    if existing and not force:
        raise ConfigError(f"{', '.join(existing)} in {str(folder)!r} already exist; choose another folder or --force")
    with writing(folder, option="folder"):
        folder.mkdir(parents=True, exist_ok=True)
        for target, content in targets.items():
            target.write_bytes(content)
    return list(targets)


@recipe_command
def run(
    recipe: "Recipe",
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="STAGE", help="Last stage to run, such as labels or scorer; default: all."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and its cost without running it.")] = False,
    retry_failed: RetryOption = False,
) -> None:
    """Run all stages of a recipe, from problems to the report.

    Complete stages are reused. An interrupted run resumes: no answer is paid for and no adapter trained twice. The
    stages: problems, candidates, labels, pairs, scorer, energies, scores, calibration, passes, baselines, evaluation.
    """
    from raydebm.cli.console import show_evaluation
    from raydebm.cli.pipeline import pipeline_for
    from raydebm.run.stages import STAGES

    names = [each.name for each in STAGES]
    stage = next((name for name in names if name == (until or names[-1])), None)
    if stage is None:
        raise ConfigError(f"--until must be one of {', '.join(names)}, got {until!r}")
    if dry_run:
        _show_plan(recipe)
        return
    is_evaluated = stage == names[-1]
    with pipeline_for(recipe, judges=is_evaluated, retry_failed=retry_failed) as pipeline:
        if is_evaluated:
            show_evaluation(pipeline)
        else:
            pipeline.make(stage)


def _show_plan(recipe: "Recipe") -> None:
    """Print the plan of a run and its cost. Loads the problems, but sends no request."""
    from rich.table import Table

    from raydebm.cli.console import console
    from raydebm.pipeline.plan import plan_of

    plan = plan_of(recipe)
    table = Table(title=f"{recipe.name}: {recipe.task.name}, nothing has been sent", title_justify="left")
    for column in ("generator", "requests", "prompt tokens (estimate)", "completion tokens at most", "US$"):
        table.add_column(column, justify="left" if column == "generator" else "right")
    for row in plan.estimates:
        cost = "unknown" if row.usd_low is None else f"{row.usd_low:,.2f} to {row.usd_high:,.2f}"
        counts = (row.num_requests, row.prompt_tokens, row.max_completion_tokens)
        table.add_row(row.generator, *(f"{count:,}" for count in counts), cost)
    console.print(table)
    for line in plan.notes:
        console.print(f"- {line}")


@recipe_command
def validate(recipe: "Recipe") -> None:
    """Check a recipe and print it with its defaults.

    A null in the output is the task's default, or the default that `raydebm reference` states.
    """
    from raydebm.cli.console import console
    from raydebm.tasks import task_of

    task_of(recipe.task)
    console.print_json(json.dumps(recipe.model_dump(mode="json", by_alias=True)))


def reference(
    task_file: Annotated[bool, typer.Option("--task-file", help="Print the keys of a task file instead.")] = False,
) -> None:
    """Print every key of a recipe, with its meaning.

    The output is Markdown with types and defaults: docs/recipe.md, or docs/task_file.md.
    """
    from raydebm.config.recipe_reference import render as recipe_page
    from raydebm.tasks.declared.definition import reference_page as task_page

    typer.echo(task_page() if task_file else recipe_page(), nl=False)
