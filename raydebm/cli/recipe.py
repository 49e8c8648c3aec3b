"""``raydebm validate`` and ``raydebm reference``: what a recipe says, and what it may say."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from raydebm.cli.parameters import recipe_command

if TYPE_CHECKING:
    from raydebm.config import Recipe


@recipe_command
def validate(recipe: "Recipe") -> None:
    """Check a recipe and print it with its defaults.

    null is the task's default, or what docs/recipe.md says.
    """
    from raydebm.cli.console import console
    from raydebm.tasks import task_of

    task_of(recipe.task)
    console.print_json(json.dumps(recipe.model_dump(mode="json", by_alias=True)))


def reference(
    task_file: Annotated[bool, typer.Option("--task-file", help="Keys of a task file (docs/task_file.md).")] = False,
) -> None:
    """Print every key of a recipe, with its meaning.

    With its type and default, as Markdown: docs/recipe.md.
    """
    from raydebm.config.recipe_reference import render as recipe_page
    from raydebm.tasks.declared.task_file_reference import render as task_page

    typer.echo(task_page() if task_file else recipe_page(), nl=False)
