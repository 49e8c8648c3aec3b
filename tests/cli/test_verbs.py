"""The verbs are imported when they are called, and their options are stated once."""

import inspect
import subprocess
import sys

import pytest
import yaml

from raydebm.cli.commands import VERBS, command_of
from raydebm.cli.parameters import recipe_command

HEAVY = {"ray", "torch", "transformers", "numpy", "pandas", "pyarrow", "pydantic", "yaml", "rich", "raydebm.config"}


def modules_after(*arguments):
    """Names of everything that a command line imports."""
    code = (
        "import sys\nfrom raydebm.cli import main\ntry:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print(' '.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_help_imports_no_verb_and_nothing_heavy():
    modules = modules_after("--help")

    assert not modules & HEAVY
    assert "raydebm.cli.console" not in modules


def test_help_of_a_stage_imports_no_recipe():
    """typer itself imports pydantic to read the types of options."""
    assert not modules_after("run", "--help") & (HEAVY - {"rich", "pydantic"})


def test_help_of_tasks_imports_nothing_that_reads_or_checks_them():
    assert not modules_after("task", "--help") & {"ray", "torch", "transformers", "jmespath", "jsonschema", "re2"}


def test_a_dry_run_imports_neither_ray_nor_what_trains_and_fits(tmp_path):
    source = {"split": "train", "source": "generate:2-3", "limit": 2}
    recipe = {
        "name": "r",
        "task": {"name": "knights_knaves", "train": source, "test": {**source, "split": "test"}},
        "generators": [{"kind": "openai", "name": "g", "model": "m"}],
    }
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(recipe))

    modules = modules_after("run", "--config", str(file), "--dry-run")

    assert not modules & {"ray", "torch", "transformers", "pandas", "scipy", "duckdb", "httpx", "asyncio"}
    assert not modules & {"raydebm.generators.endpoint.openai_api", "raydebm.tasks.taco", "raydebm.scorer.ensemble"}


@pytest.mark.parametrize("name", VERBS)
def test_help_lists_a_verb_with_the_first_line_of_its_own_help(name):
    assert command_of(name).help.splitlines()[0] == VERBS[name][1]


def test_a_recipe_command_gets_the_recipe_that_its_options_name(tmp_path):
    """The file, then the flags, then the dotted overrides."""
    file = tmp_path / "recipe.yaml"
    generator = {"kind": "recorded", "name": "g", "pool": "p", "model": "m"}
    file.write_text(yaml.safe_dump({"name": "r", "task": {"name": "gsm8k"}, "generators": [generator], "seed": 1}))
    calls = []

    @recipe_command
    def verb(recipe, repeat=1):
        calls.append((recipe.task.name, recipe.run_dir, recipe.seed, recipe.generators[0].pool, repeat))

    verb(config=file, task="musr", run_dir="elsewhere", recorded="other", overrides=["seed=7"], repeat=2)

    assert list(inspect.signature(verb).parameters) == ["config", "task", "run_dir", "overrides", "recorded", "repeat"]
    assert calls == [("musr", "elsewhere", 7, "other", 2)]
