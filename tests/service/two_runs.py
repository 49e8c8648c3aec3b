"""Run directories of two tasks for one service: puzzles, whose reader is strict, and word problems, which read any
text."""

import pytest
from hand_written_run import run_at

from raydebm.decision.policy import Policy
from raydebm.service.settings import AppArgs, RunArgs

QUESTION = "Ida buys 96 eggs and gives 12 eggs to a niece. How many pears are left?"


def write_second_run(folder, recipe, task_name="gsm8k"):
    """The second run's directory, with adapters and a generator of its own under a known name."""
    own = {**recipe, "name": "second", "task": {"name": task_name}, "generators": recipe["generators"][:1]}
    return run_at(folder, own, Policy(num_regenerate=2, theta_sigma=0.5), meta={"name": "second"})


@pytest.fixture
def two_runs(write_run, recipe, tmp_path):
    """Arguments of a service of both runs; changes are further arguments."""
    further = (RunArgs(run_dir=write_second_run(tmp_path / "second", recipe)),)
    return lambda **changes: AppArgs(run_dir=write_run(), further_runs=further, **changes)
