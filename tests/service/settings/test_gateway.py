"""Several runs behind one address: what their bundle holds, and which arguments are refused."""

import pytest
from two_runs import write_second_run

from raydebm.errors import ConfigError
from raydebm.service.settings import AppArgs, RunArgs, load_gateway


def test_every_run_keeps_its_policy_adapters_and_generators(two_runs):
    gateway = load_gateway(two_runs())

    assert gateway.tasks == ("knights_knaves", "gsm8k")
    assert [run.policies[name].theta_sigma for run, name in zip(gateway.runs, gateway.tasks, strict=True)] == [0.8, 0.5]
    assert gateway.of("knights_knaves").checkpoint_ref != gateway.of("gsm8k").checkpoint_ref
    assert (gateway.of("gsm8k").generators, gateway.all_generators) == (("ada",), ("ada", "bo"))


def test_all_runs_store_their_decisions_in_the_first_runs_folder(two_runs):
    gateway = load_gateway(two_runs())

    assert gateway.of("gsm8k").records == gateway.records


def test_a_task_has_one_run(write_run, recipe, tmp_path):
    other = write_second_run(tmp_path / "other", recipe, "knights_knaves", texts=())
    with pytest.raises(ConfigError, match=r"task 'knights_knaves' is served from .*run and from .*other"):
        load_gateway(AppArgs(run_dir=write_run(), further_runs=(RunArgs(run_dir=other),)))
