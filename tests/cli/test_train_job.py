"""What `jobs/train_all.py` trains without arguments."""

import importlib.util
from pathlib import Path

import pytest

from raydebm.cli.starter import RECIPE

DEMO = ["--config", str(RECIPE)]


@pytest.fixture
def arguments(repository):
    spec = importlib.util.spec_from_file_location("train_all_job", repository / "jobs" / "train_all.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.arguments


@pytest.mark.parametrize(
    "given", [["--config", "r.yaml"], ["--config=r.yaml"], ["-c", "r.yaml"], ["pairs.seed=1", "-cr.yaml"]]
)
def test_a_recipe_that_is_named_is_trained(arguments, given):
    assert arguments(given, Path("/clone")) == given


def test_the_demos_recipe_is_trained_without_one(arguments):
    assert arguments([], Path("/clone")) == DEMO
    assert arguments(["pairs.seed=1"], Path("/clone")) == [*DEMO, "pairs.seed=1"]


def test_a_run_is_not_put_into_the_copy_that_ray_unpacked(arguments, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    copy = Path("/tmp/ray/session/runtime_resources/working_dir_files/_ray_pkg_0123")

    assert arguments([], copy) == [*DEMO, "--run-dir", "/home/ada/runs/demo"]
    own = ["--run-dir", "/shared/run"]
    assert arguments(own, copy)[-2:] == own  # the last one counts
