"""The command line as a user meets it: one clear line for a mistake, exit code 2, nothing started."""

import os
import re
import subprocess
import sys

import pytest
import yaml

RECIPE = {
    "name": "t",
    "task": {
        "name": "knights_knaves",
        "train": {"split": "train", "source": "generate:2-3", "limit": 6},
        "test": {"split": "test", "source": "generate:2-3", "limit": 4},
    },
    "generators": [
        {"kind": "openai", "name": "priced", "model": "m", "usd_per_million_tokens": (1.0, 2.0)},
        {"kind": "openai", "name": "unpriced", "model": "n", "base_url": "http://127.0.0.1:9/v1"},
    ],
    "generation": {"num_samples": 2, "greedy": False, "max_tokens": 100},
}  # fmt: skip


@pytest.fixture
def recipe(tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump({**RECIPE, "run_dir": str(tmp_path / "run")}), encoding="utf-8")
    return str(file)


def in_a_process(*arguments, **environment):
    """The command in a process of its own."""
    cleared = {key: value for key, value in os.environ.items() if key not in {"OPENROUTER_API_KEY", "RAY_ADDRESS"}}
    return subprocess.run(
        [sys.executable, "-m", "raydebm", *arguments],
        capture_output=True, text=True, check=False, timeout=240, env={**cleared, "COLUMNS": "200", **environment},
    )  # fmt: skip


def assert_one_clear_error(done, pattern):
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert re.search(pattern, done.stderr, flags=re.DOTALL), done.stderr


def test_missing_recipe_is_named(raydebm):
    assert_one_clear_error(raydebm("run", "--config", "nowhere.yaml"), "nowhere.yaml.*does not exist")


def test_missing_api_key_names_generator_variable_and_way_out_before_ray_is_started(raydebm, recipe, monkeypatch):
    monkeypatch.setattr("raydebm.pipeline.ray.session.ray_session", lambda config: pytest.fail("Ray was started"))
    done = raydebm("run", "--config", recipe)

    assert_one_clear_error(done, "'priced'.*OPENROUTER_API_KEY.*export OPENROUTER_API_KEY")


def test_unreachable_ray_is_named_with_a_way_out(recipe):
    done = in_a_process("run", "--config", recipe, OPENROUTER_API_KEY="k", RAY_ADDRESS="127.0.0.1:9")

    assert_one_clear_error(done, r"127\.0\.0\.1:9")


def test_dry_run_counts_requests_and_cost_and_writes_nothing(raydebm, recipe, tmp_path):
    """10 problems x 2 samples; 20 completions of at most 100 tokens at $2 per million are $0.004."""
    done = raydebm("run", "--config", recipe, "--dry-run")

    assert done.returncode == 0, done.stderr
    assert re.search(r"priced\s+│\s+20 │[^│]*│\s+2,000 │", done.stdout), done.stdout
    assert re.search(r"unpriced.*unknown", done.stdout)
    assert "plus requests without a price" in done.stdout
    assert not (tmp_path / "run").exists()


def test_validate_prints_every_default(raydebm, recipe):
    done = raydebm("validate", "--config", recipe)

    assert '"theta_sigma": 0.8' in done.stdout


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--seeds", "0,x"], "--seeds must be whole numbers with commas between them, got '0,x'"),
        (["--seeds", "0,1", "--num-seeds", "2"], "give --seeds or --num-seeds, not both"),
    ],
)
def test_seeds_that_are_not_clear_are_refused_before_ray_is_started(raydebm, recipe, flags, message):
    process = raydebm("seeds", "--config", recipe, "--folds", "3", *flags)
    assert process.returncode == 2
    assert message in process.stderr


def test_serving_a_folder_that_is_no_run_says_what_to_do(tmp_path):
    done = in_a_process("serve", "--run-dir", str(tmp_path), "--port", "0")

    assert_one_clear_error(done, "recipe.json.*make demo")


def test_a_stage_that_there_is_not_is_refused_with_the_known_ones(raydebm, recipe):
    done = raydebm("run", "--config", recipe, "--until", "lables")

    assert_one_clear_error(done, "--until must be one of problems, candidates, labels, .*got 'lables'")


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        (("run", "--config", "{recipe}", "--dry-run", "seed=[1"), "override 'seed=.1': the value is not YAML; put it"),
        (("run", "--config", "{recipe}", "--dry-run", "--run-dir", "nope://x"), "'nope://x' is not an address"),
        (("export", "--out", "{folder}/out", "--run-dir", "{recipe}"), "cannot be read: it leads through a file"),
        (("replay", "{recipe}"), "recipe.yaml is a file; give the folder"),
        (("replay", "nope://x"), "'nope://x' is not an address"),
    ],
)
def test_a_path_of_the_wrong_kind_is_one_clear_error(raydebm, recipe, tmp_path, arguments, pattern):
    names = {"recipe": recipe, "folder": str(tmp_path)}

    done = raydebm(*(argument.format(**names) for argument in arguments))

    assert_one_clear_error(done, pattern)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recipe.yaml"]


def test_a_level_of_logs_that_is_none_is_refused_with_the_known_ones(raydebm, monkeypatch):
    monkeypatch.setenv("RAYDEBM_LOG_LEVEL", "foo")

    assert_one_clear_error(raydebm("--help"), "RAYDEBM_LOG_LEVEL 'foo' is not a level; use DEBUG, INFO")
