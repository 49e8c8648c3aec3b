"""What is wrong with a run directory is said at build, before any replica starts."""

import json
from pathlib import Path

import pytest

from raydebm.decision.policy import Policy
from raydebm.errors import CheckpointError, ConfigError, UnknownNameError
from raydebm.service.settings import AppArgs, load_bundle


def test_a_complete_run_gives_everything(write_run):
    bundle = load_bundle(AppArgs(run_dir=write_run(policy=Policy(theta_sigma=0.1))))
    assert bundle.tasks == ("knights_knaves",)
    assert bundle.generators == ("ada", "bo")
    assert bundle.policies["knights_knaves"].theta_sigma == 0.1
    assert bundle.checkpoint.endswith("/scorer")
    assert bundle.versions["backbone"] == "embedded:encoder-mini"


@pytest.mark.parametrize(
    ("without", "kind", "words"),
    [
        (["recipe"], ConfigError, r"recipe\.json does not exist; make a run first"),
        (["policy"], ConfigError, r"policy\.json does not exist; run `raydebm calibrate`"),
        (["scorer"], CheckpointError, r"does not contain a trained ensemble .* run `raydebm run`"),
    ],
)
def test_a_missing_piece_is_named_with_the_way_out(write_run, without, kind, words):
    root = write_run(without=without)
    with pytest.raises(kind, match=words):
        load_bundle(AppArgs(run_dir=root))


@pytest.mark.parametrize(("noted", "expected"), [({}, "answer"), ({"reasoning": "all"}, "all")])
def test_candidates_are_read_as_the_ensemble_was_trained(write_run, noted, expected):
    root = write_run()
    file = Path(root, "scorer", "ensemble.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | noted))
    assert load_bundle(AppArgs(run_dir=root)).reasoning == expected


def test_another_policy_file_can_be_served(write_run, tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(Policy(lambda_=3.0).to_json()))
    assert load_bundle(AppArgs(run_dir=write_run(), policy=str(file))).policies["knights_knaves"].lambda_ == 3.0


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


def test_a_subset_of_generators_can_be_served(write_run):
    bundle = load_bundle(AppArgs(run_dir=write_run(), generators=("bo",)))
    assert bundle.generators == ("bo",)


def test_an_unknown_generator_is_named(write_run):
    with pytest.raises(UnknownNameError, match="unknown generator 'eve'; known: ada, bo"):
        load_bundle(AppArgs(run_dir=write_run(), generators=("eve",)))


def test_a_broken_recipe_is_named(write_run):
    root = write_run()
    with open(f"{root}/recipe.json", "w") as file:
        file.write('{"name": "x"}')
    with pytest.raises(ConfigError, match=r"recipe\.json is not a valid recipe"):
        load_bundle(AppArgs(run_dir=root))
