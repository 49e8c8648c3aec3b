"""The stages of a run: ``raydebm run``, ``generate``, ``label``, ``train``, ``score``, ``evaluate``.

Each verb first runs the missing stages that it depends on.
"""

from typing import TYPE_CHECKING

from rich.table import Table

from raydebm.cli.console import console, show_evaluation
from raydebm.cli.parameters import DryRunOption, RetryOption, recipe_command
from raydebm.cli.pipeline import pipeline_for

if TYPE_CHECKING:
    from raydebm.config import Recipe


@recipe_command
def run(recipe: "Recipe", dry_run: DryRunOption = False, retry_failed: RetryOption = False) -> None:
    """Run all stages of a recipe, from problems to the report."""
    if dry_run:
        _show_plan(recipe)
    else:
        _evaluate(recipe, retry_failed)


@recipe_command
def generate(recipe: "Recipe", retry_failed: RetryOption = False) -> None:
    """Sample candidates from every generator.

    A run that was interrupted resumes, and pays for no completion twice.
    """
    with pipeline_for(recipe, retry_failed=retry_failed) as pipeline:
        pipeline.make("candidates")


@recipe_command
def label(recipe: "Recipe", retry_failed: RetryOption = False) -> None:
    """Label candidates from gold, and check constraints."""
    with pipeline_for(recipe, retry_failed=retry_failed) as pipeline:
        pipeline.make("labels")


@recipe_command
def train(recipe: "Recipe", retry_failed: RetryOption = False) -> None:
    """Train all adapters in parallel.

    Finished adapters are not trained again.
    """
    with pipeline_for(recipe, retry_failed=retry_failed) as pipeline:
        pipeline.make("scorer")


@recipe_command
def score(recipe: "Recipe", retry_failed: RetryOption = False) -> None:
    """Compute energies of validation and test candidates."""
    with pipeline_for(recipe, retry_failed=retry_failed) as pipeline:
        pipeline.make("energies")


@recipe_command
def evaluate(recipe: "Recipe", retry_failed: RetryOption = False) -> None:
    """Compare all selectors on the test split.

    Writes the report.
    """
    _evaluate(recipe, retry_failed)


def _evaluate(recipe: "Recipe", retry_failed: bool) -> None:
    with pipeline_for(recipe, judges=True, retry_failed=retry_failed) as pipeline:
        show_evaluation(pipeline.evaluate(), pipeline.run.uri("evaluation", "report.html"))


def _show_plan(recipe: "Recipe") -> None:
    """Print what a run would do and cost. Loads the problems and sends nothing."""
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
