"""What is wrong with a run directory is said at build, before any replica starts."""

import json
from pathlib import Path

import pytest
from two_runs import write_second_run

from raydebm.decision.policy import Policy
from raydebm.errors import CheckpointError, ConfigError, UnknownNameError
from raydebm.service.settings import AppArgs, RunArgs, load_bundle, load_gateway


def test_a_complete_run_gives_everything(write_run):
    bundle = load_bundle(AppArgs(run_dir=write_run(policy=Policy(theta_sigma=0.1))))
    assert bundle.tasks == ("knights_knaves",)
    assert bundle.generators == ("ada", "bo")
    assert bundle.policy.theta_sigma == 0.1
    assert bundle.checkpoint.endswith("/scorer")
    assert bundle.versions["backbone"] == "embedded:encoder-mini"


@pytest.mark.parametrize(
    ("file", "kind", "words"),
    [
        ("recipe.json", ConfigError, r"recipe\.json does not exist; make a run first"),
        ("calibration/policy.json", ConfigError, r"policy\.json does not exist; run `raydebm calibrate`"),
        ("scorer/ensemble.json", CheckpointError, r"does not contain a trained ensemble .* run `raydebm run`"),
    ],
)
def test_a_missing_piece_is_named_with_the_way_out(write_run, file, kind, words):
    root = write_run()
    Path(root, file).unlink()
    with pytest.raises(kind, match=words):
        load_bundle(AppArgs(run_dir=root))


@pytest.mark.parametrize(("noted", "expected"), [({}, "answer"), ({"reasoning": "all"}, "all")])
def test_candidates_are_read_as_the_ensemble_was_trained(write_run, noted, expected):
    assert load_bundle(AppArgs(run_dir=write_run(**noted))).reasoning == expected


def test_another_policy_file_can_be_served(write_run, tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(Policy(lambda_=3.0).to_json()))
    assert load_bundle(AppArgs(run_dir=write_run(), policy=str(file))).policy.lambda_ == 3.0


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "does not exist"), ("{", "is not JSON"), ('{"lamda": 1}', "lamda"), ('{"theta_sigma": 9}', "theta_sigma")],
)
def test_an_unusable_policy_file_is_named(write_run, tmp_path, content, words):
    file = tmp_path / "mine.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=words) as caught:
        load_bundle(AppArgs(run_dir=write_run(), policy=str(file)))
    assert "mine.json" in str(caught.value)


@pytest.mark.parametrize(
    ("policies", "error", "words"),
    [
        ({"a b": {}}, ConfigError, "must be letters"),
        ({"x": {"theta_sigma": 2.0}}, ConfigError, "policy 'x'.*theta_sigma"),
        ({"x": {"generators": ["eve"]}}, UnknownNameError, "eve"),
        ({"x": {"policy": "y"}}, ConfigError, "names another policy"),
    ],
)
def test_a_bad_named_policy_ends_the_start(policies, error, words, bundle_of):
    with pytest.raises(error, match=words):
        bundle_of(policies=policies)


def test_every_run_keeps_its_policy_adapters_and_generators(two_runs):
    gateway = load_gateway(two_runs())

    assert gateway.tasks == ("knights_knaves", "gsm8k")
    assert [run.policy.theta_sigma for run in gateway.runs] == [0.8, 0.5]
    assert gateway.of("knights_knaves").checkpoint_ref != gateway.of("gsm8k").checkpoint_ref
    assert (gateway.of("gsm8k").generators, gateway.all_generators) == (("ada",), ("ada", "bo"))


def test_all_runs_store_their_decisions_in_the_first_runs_folder(two_runs):
    gateway = load_gateway(two_runs())

    assert gateway.of("gsm8k").records == gateway.records


def test_a_task_has_one_run(write_run, recipe, tmp_path):
    other = write_second_run(tmp_path / "other", recipe, "knights_knaves")
    with pytest.raises(ConfigError, match=r"task 'knights_knaves' is served from .*run and from .*other"):
        load_gateway(AppArgs(run_dir=write_run(), further_runs=(RunArgs(run_dir=other),)))
