"""The ``raydebm`` command. Every verb calls the function that the job of that name calls.

Nothing heavy is imported until a verb needs it, so that ``raydebm --help`` answers at once.
"""

import json
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from raydebm.calibrate_command import calibrate
from raydebm.config import Recipe
from raydebm.console import console, pipeline_for, show_evaluation
from raydebm.errors import ConfigError, RaydebmError
from raydebm.export_command import export
from raydebm.import_command import import_decisions
from raydebm.recipe_options import (
    ConfigOption,
    RetryOption,
    RunDirOption,
    SetArgument,
    TaskOption,
    read_recipe,
)
from raydebm.replay_command import replay
from raydebm.task_commands import app as task_app

app = typer.Typer(
    name="raydebm",
    help="Choose among LLM answers, and know when none can be trusted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(task_app, name="task")
app.command()(replay)
app.command()(export)
app.command("import-decisions")(import_decisions)


@app.command()
def run(
    config: ConfigOption,
    task: TaskOption = None,
    run_dir: RunDirOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done and cost; do nothing.")] = False,
    retry_failed: RetryOption = False,
    overrides: SetArgument = None,
) -> None:
    """Everything: problems, candidates, labels, adapters, energies, calibration, evaluation, report."""
    recipe = read_recipe(config, task, run_dir, overrides)
    if dry_run:
        show_plan(recipe)
        return
    with pipeline_for(recipe, judges=True, retry_failed=retry_failed) as pipeline:
        show_evaluation(pipeline.evaluate(), pipeline.run.uri("evaluation", "report.html"))


@app.command()
def generate(
    config: ConfigOption,
    task: TaskOption = None,
    run_dir: RunDirOption = None,
    retry_failed: RetryOption = False,
    overrides: SetArgument = None,
) -> None:
    """Draw candidates from every generator; resumes where it stopped, without paying twice."""
    recipe = read_recipe(config, task, run_dir, overrides)
    with pipeline_for(recipe, retry_failed=retry_failed) as pipeline:
        pipeline.make_candidates()


@app.command()
def label(
    config: ConfigOption,
    task: TaskOption = None,
    run_dir: RunDirOption = None,
    retry_failed: RetryOption = False,
    overrides: SetArgument = None,
) -> None:
    """Label candidates from gold, and run the gold-free constraint checks."""
    with pipeline_for(read_recipe(config, task, run_dir, overrides), retry_failed=retry_failed) as pipeline:
        pipeline.make_labels()


@app.command()
def train(
    config: ConfigOption,
    task: TaskOption = None,
    run_dir: RunDirOption = None,
    retry_failed: RetryOption = False,
    overrides: SetArgument = None,
) -> None:
    """Train all adapters in parallel; finished ones are kept and not trained again."""
    with pipeline_for(read_recipe(config, task, run_dir, overrides), retry_failed=retry_failed) as pipeline:
        pipeline.train()


@app.command()
def score(
    config: ConfigOption,
    task: TaskOption = None,
    run_dir: RunDirOption = None,
    retry_failed: RetryOption = False,
    overrides: SetArgument = None,
) -> None:
    """Energies of the validation and test candidates."""
    with pipeline_for(read_recipe(config, task, run_dir, overrides), retry_failed=retry_failed) as pipeline:
        pipeline.make_energies()


app.command()(calibrate)


@app.command()
def evaluate(
    config: ConfigOption,
    task: TaskOption = None,
    run_dir: RunDirOption = None,
    retry_failed: RetryOption = False,
    overrides: SetArgument = None,
) -> None:
    """Compare all selectors on the test split and write the report."""
    recipe = read_recipe(config, task, run_dir, overrides)
    with pipeline_for(recipe, judges=True, retry_failed=retry_failed) as pipeline:
        show_evaluation(pipeline.evaluate(), pipeline.run.uri("evaluation", "report.html"))


@app.command()
def reproduce(
    config: Annotated[list[Path], typer.Option("--config", "-c", help="Recipe file; repeatable, a run each.")],
    task: Annotated[list[str] | None, typer.Option("--task", help="Each recipe for this task; repeatable.")] = None,
    out: Annotated[str, typer.Option("--out", help="Where the report goes.")] = "runs/reproduction",
    transfer: Annotated[bool, typer.Option("--transfer", help="Score every run with every other's adapters.")] = False,
    confounding: Annotated[
        bool, typer.Option("--confounding", help="Probes, style ablation and style swap of every scorer.")
    ] = False,
    retry_failed: RetryOption = False,
    overrides: SetArgument = None,
) -> None:
    """Every table and figure of the paper, from all the runs given and the variants of their recipes, in one report;
    makes what is missing first."""
    tasks: list[str | None] = [*task] if task else [None]
    recipes = [read_recipe(file, name, None, overrides) for file in config for name in tasks]
    with ExitStack() as stack:
        pipelines = [
            stack.enter_context(pipeline_for(recipe, judges=True, retry_failed=retry_failed)) for recipe in recipes
        ]
        from raydebm.distributed.reproduction import reproduce as make_report
        from raydebm.store import RunDir

        _, address = make_report(
            pipelines, run=RunDir(_resolved(out)), with_transfer=transfer, with_confounding=confounding
        )
        console.print(f"report: {address}")


@app.command()
def seeds(
    config: ConfigOption,
    num_seeds: Annotated[
        int | None,
        typer.Option("--num-seeds", min=1, help="Trainings, from the recipe's seed on; 5, or 1 of each fold."),
    ] = None,
    seed_list: Annotated[str | None, typer.Option("--seeds", help="Seeds of the trainings, such as 0,1,2.")] = None,
    folds: Annotated[
        int | None, typer.Option("--folds", min=2, help="Test every problem once, by training on the other folds.")
    ] = None,
    task: TaskOption = None,
    run_dir: RunDirOption = None,
    retry_failed: RetryOption = False,
    overrides: SetArgument = None,
) -> None:
    """Train several times on the same candidates, or on all folds but one: intervals over problems, spread over
    trainings."""
    recipe = read_recipe(config, task, run_dir, overrides)
    chosen = _chosen_seeds(recipe, num_seeds, seed_list, default=5 if folds is None else 1)
    with pipeline_for(recipe, own_candidates=False) as pipeline:  # each training has a run directory of its own
        if folds is None:
            from raydebm.distributed.seeds import train_seeds
            from raydebm.evaluation.seeds_report import summary

            over_seeds, address = train_seeds(
                recipe,
                chosen,
                run=pipeline.run,
                retry_failed=retry_failed,
                progress=pipeline.progress,
                on_stage=pipeline.on_stage,
            )
            text = summary(over_seeds)
        else:
            from raydebm.distributed.folds import train_folds
            from raydebm.evaluation.folds_report import summary as summary_of_folds

            over_folds, address = train_folds(pipeline, count=folds, seeds=chosen, retry_failed=retry_failed)
            text = summary_of_folds(over_folds)
        console.print(text, markup=False)
        console.print(f"report: {address}")


def _chosen_seeds(recipe: Recipe, num_seeds: int | None, seed_list: str | None, *, default: int) -> list[int]:
    """The seeds of ``--seeds``, or so many from the recipe's own on.

    Raises:
        ConfigError: both options are given, or an entry is not a whole number.
    """
    if seed_list is None:
        return [recipe.training_seed + index for index in range(num_seeds or default)]
    if num_seeds is not None:
        raise ConfigError("give --seeds or --num-seeds, not both")
    try:
        return [int(entry) for entry in seed_list.split(",")]
    except ValueError as error:
        raise ConfigError(f"--seeds must be whole numbers with commas between them, got {seed_list!r}") from error


@app.command()
def confounding(
    config: ConfigOption, task: TaskOption = None, run_dir: RunDirOption = None, overrides: SetArgument = None
) -> None:
    """Does the scorer know what is right, or who wrote it? Screen, linear probes, style ablation, and a style swap of
    the generators in `confounding.swap`."""
    with pipeline_for(read_recipe(config, task, run_dir, overrides)) as pipeline:
        from raydebm.distributed.studies import confounding as make_report

        found, address = make_report(pipeline)
        console.print(found.summary())
        console.print(f"report: {address}")


@app.command()
def repair(
    config: ConfigOption,
    task: TaskOption = None,
    run_dir: RunDirOption = None,
    equalise: Annotated[
        float, typer.Option("--equalise", help="Weight on what balancing leaves; 0: the paper's way.")
    ] = 0,
    overrides: SetArgument = None,
) -> None:
    """Refit the energy heads on data balanced over generators and labels; measures before and after."""
    with pipeline_for(read_recipe(config, task, run_dir, overrides)) as pipeline:
        from raydebm.distributed.studies import repair_run

        found, address = repair_run(pipeline, equalise=equalise)
        console.print(f"before: {found.before.summary()}")
        console.print(f"after: {found.after.summary()}")
        console.print(f"report: {address}")
        console.print(
            "Energies have another scale now. To calibrate and evaluate the repaired scorer: raydebm evaluate "
            f"--config {config} --run-dir {pipeline.run.uri('repair')}"
        )


def _resolved(folder: str) -> str:
    return folder if "://" in folder else str(Path(folder).resolve())


@app.command()
def validate(
    config: ConfigOption, task: TaskOption = None, run_dir: RunDirOption = None, overrides: SetArgument = None
) -> None:
    """Check a recipe and print it with its defaults; null is the task's default, or what docs/recipe.md says."""
    recipe = read_recipe(config, task, run_dir, overrides)
    _check_names(recipe)
    console.print_json(json.dumps(recipe.model_dump(mode="json", by_alias=True)))


@app.command()
def reference(
    task_file: Annotated[bool, typer.Option("--task-file", help="Of a task file (docs/task_file.md).")] = False,
) -> None:
    """Every key of a recipe with its type, default and meaning, as Markdown (docs/recipe.md)."""
    from raydebm.config.reference import render as recipe_page
    from raydebm.tasks.declared.reference import render as task_page

    typer.echo(task_page() if task_file else recipe_page(), nl=False)


@app.command()
def serve(
    run_dir: Annotated[str, typer.Option("--run-dir", help="A finished run; a folder or a URL.")] = "runs/demo",
    host: str = "127.0.0.1",
    port: int = 8000,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="A name under which a service without keys answers; repeatable.")
    ] = None,
) -> None:
    """Serve a finished run until Ctrl-C or SIGTERM (in production: `serve run serve_config.yaml`)."""
    from raydebm.serving.app import AppArgs, serve_until_interrupted

    args = AppArgs.model_validate(
        {
            "run_dir": _resolved(run_dir),
            "allowed_hosts": (host, *(allowed_host or ())),
            "policies": {"text": {"on_abstain": "text"}},
        }
    )
    serve_until_interrupted(args, host=host, port=port)


@app.command("import-pool")
def import_pool(
    pool: Annotated[Path, typer.Argument(help="JSON lines with problem_id, model, text; or raydebm Parquet.")],
    config: ConfigOption,
    out: Annotated[Path, typer.Option("--out", help="Parquet file to write.")],
    task: TaskOption = None,
    model: Annotated[list[str] | None, typer.Option("--model", help="Keep only this model; repeatable.")] = None,
    text_field: Annotated[
        list[str] | None, typer.Option("--text-field", help="Where the answer stands in a line; repeatable.")
    ] = None,
    overrides: SetArgument = None,
) -> None:
    """Turn a recorded pool of other people's generations into candidates of our schema."""
    from raydebm.generators.recorded import TEXT_FIELDS
    from raydebm.generators.recorded import import_pool as read_pool
    from raydebm.store import CANDIDATES, RunDir, candidate_row
    from raydebm.tasks import task_of

    recipe = read_recipe(config, task, None, overrides)
    found = task_of(recipe.task)
    problems = [
        problem
        for source in (recipe.task.train, recipe.task.test)
        for problem, _ in found.load(source.split, source=source.source, seed=recipe.seed)
    ]
    candidates = read_pool(
        str(pool), task=recipe.task.name, problems=problems, models=model, text_fields=text_field or TEXT_FIELDS
    )
    rows = [candidate_row(candidate) for candidate in candidates]
    RunDir(str(out.parent)).write_table(rows, CANDIDATES, out.name)
    failed = sum(candidate.error is not None for candidate in candidates)
    console.print(f"{len(rows)} candidates ({failed} with an error) written to {out}")


@app.command()
def demo(
    run_dir: Annotated[str, typer.Option("--run-dir", help="Where the demo keeps its files.")] = "runs/demo",
    port: Annotated[int, typer.Option(help="Port of the service; 0 picks a free one.")] = 0,
) -> None:
    """The whole loop offline on embedded models: train, evaluate, serve, ask. About five minutes on 2 cores."""
    from raydebm.demo import run_demo

    run_demo(run_dir=run_dir, port=port)


# ---- what people see ---------------------------------------------------------------------------------------------


def _check_names(recipe: Recipe) -> None:
    from raydebm.tasks import task_of

    task_of(recipe.task)


def show_plan(recipe: Recipe) -> None:
    """What a run would do and cost (``--dry-run``). Loads the problems and sends nothing."""
    from raydebm.distributed.plan import plan_of

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


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: a user's mistake is one clear line and exit code 2, not a traceback."""
    logging.basicConfig(
        level=os.environ.get("RAYDEBM_LOG_LEVEL", "WARNING").upper(), format="%(levelname)s %(name)s: %(message)s"
    )
    try:
        app(args=list(arguments) if arguments is not None else None)
    except RaydebmError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"[bold red]error[/bold red] ({type(error).__name__}): ", end=""
        )
        Console(stderr=True, highlight=False, soft_wrap=True, markup=False).print(str(error))
        sys.exit(2)
