"""Real Ray Train and Ray Data on two backbones: a0 and a1 on a random ModernBERT, b0 on the embedded encoder."""

import json

import pytest
from scorer_parts import recipe_for, train

from raydebm.config import Recipe, parse_recipe
from raydebm.distributed.score import ScoringInput, score
from raydebm.distributed.train import _plan
from raydebm.errors import CheckpointError, ConfigError
from raydebm.records import Candidate, Problem
from raydebm.run.directory import RunDir

MINI = "embedded:encoder-mini"
B0 = {"name": "b0", "rank": 2, "alpha": 4, "targets": ["Wqkv"], "backbone": MINI, "pooling": "mean", "max_length": 32}
ONE_SLOT = {"gpus_per_adapter": 0, "cpus_per_adapter": 5}
TEXTS = [("w1 w2", "w3 right"), ("w1 w2", "w4 wrong"), ("w5 w6", "w7 right")]


def mixed_recipe(backbone, *members, num_adapters=2) -> Recipe:
    """Adapters on the backbone, then these members."""
    tree = recipe_for(backbone, num_adapters=num_adapters, **ONE_SLOT).model_dump(mode="json", by_alias=True)
    tree["scorer"]["adapters"] += members
    return parse_recipe(tree)


def plans(recipe):
    return {adapter.name: _plan(recipe, adapter, "data") for adapter in recipe.scorer.adapters}


def test_naming_the_scorers_own_backbone_is_no_other_training(tmp_path):
    named = {**B0, "name": "a2", "backbone": str(tmp_path), "pooling": "cls", "max_length": 64}
    silent = {key: value for key, value in named.items() if key not in ("backbone", "pooling", "max_length")}

    assert plans(mixed_recipe(tmp_path, named)) == plans(mixed_recipe(tmp_path, silent))


def test_what_one_member_has_of_its_own_does_not_train_the_others_again(tmp_path):
    before = plans(mixed_recipe(tmp_path, B0))
    after = plans(mixed_recipe(tmp_path, B0 | {"max_length": 48}))

    assert {name for name in before if before[name] != after[name]} == {"b0"}


def test_a_second_backbone_trains_all_members_again_because_it_scales_their_energies(tmp_path):
    one, two = plans(mixed_recipe(tmp_path)), plans(mixed_recipe(tmp_path, B0))

    assert one["a0"] != two["a0"]


@pytest.fixture(scope="module")
def mixed(local_ray, backbone, tmp_path_factory):
    """(recipe, run directory, summary), trained in one slot."""
    folder = tmp_path_factory.mktemp("mixed")
    recipe = mixed_recipe(backbone, B0)
    return recipe, folder, train(recipe, folder)


def record_of(folder, name):
    return json.loads((folder / "scorer" / name / "training.json").read_text())


@pytest.mark.ray
def test_every_member_is_trained_on_its_own_backbone(mixed, backbone):
    _, folder, summary = mixed

    assert [adapter.name for adapter in summary.adapters] == ["a0", "a1", "b0"]
    records = [record_of(folder, name) for name in ("a0", "a1", "b0")]
    assert [(record["backbone"], record["hidden_size"]) for record in records] == [
        (str(backbone), 32), (str(backbone), 32), (MINI, 128),
    ]  # fmt: skip
    assert (records[2]["pooling"], records[2]["max_length"]) == ("mean", 32)
    assert all(record["scale"] != 1 and record["offset"] != 0 for record in records)


@pytest.mark.ray
def test_energies_have_mean_zero_over_the_validation_texts(mixed):
    """Those of ``scorer_parts.train``: four problems from 500 on."""
    from scorer_parts import groups_of

    from raydebm.scorer.ensemble import EnsembleScorer

    texts = [(group.prompt, text) for group in groups_of(500, 4) for text in group.texts]
    scored = EnsembleScorer.load(mixed[1] / "scorer", device="cpu", dtype="float32").score(texts)

    for energies in zip(*(text.members for text in scored), strict=True):
        assert sum(energies) / len(energies) == pytest.approx(0, abs=1e-4)


@pytest.mark.ray
def test_a_rerun_keeps_all_members(mixed):
    recipe, folder, _ = mixed

    assert [adapter.reused for adapter in train(recipe, folder).adapters] == [True, True, True]


@pytest.mark.ray
@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"targets": ["q_proj"]}, ConfigError, r"backbone 'embedded:encoder-mini': adapter 'b0': target 'q_proj'"),
        ({"backbone": "/nowhere/at/all"}, CheckpointError, r"backbone folder '/nowhere/at/all' does not exist"),
    ],
    ids=["a target that it lacks", "no folder"],
)
def test_a_member_that_does_not_fit_is_refused_before_it_is_trained(
    local_ray, backbone, tmp_path, change, error, match
):
    with pytest.raises(error, match=match):
        train(mixed_recipe(backbone, B0 | change, num_adapters=1), tmp_path)
    assert not (tmp_path / "scorer" / "ensemble.json").exists()


@pytest.mark.ray
def test_a_folder_that_is_no_model_is_named(local_ray, backbone, tmp_path):
    (tmp_path / "empty").mkdir()
    member = B0 | {"backbone": str(tmp_path / "empty")}

    with pytest.raises(CheckpointError, match=r"backbone '.*empty' cannot be read"):
        train(mixed_recipe(backbone, member, num_adapters=1), tmp_path / "run")


# Last, because the actors take processes that have imported torch along when they end.
@pytest.mark.ray
@pytest.mark.parametrize("gpus", [0, 0.5], ids=["tasks-on-cpus", "actors-on-gpus"])
def test_candidates_get_the_energies_of_all_members_in_their_order(mixed, tmp_path, gpus):
    from raydebm.scorer.ensemble import EnsembleScorer

    _, folder, summary = mixed
    problems = {prompt: Problem(task="moody", problem_id=prompt, prompt=prompt) for prompt, _ in TEXTS}
    candidates = [
        Candidate(candidate_id=f"c{number}", task="moody", problem_id=prompt, generator="g", text=text)
        for number, (prompt, text) in enumerate(TEXTS)
    ]
    run = RunDir(str(tmp_path))
    recipe = recipe_for(tmp_path, gpus_per_adapter=gpus)
    scored = score(
        ScoringInput(problems=problems, candidates=candidates), checkpoint=summary.checkpoint, recipe=recipe, run=run
    )

    alone = EnsembleScorer.load(folder / "scorer", device="cpu", dtype="float32").score(TEXTS)
    for row, expected in zip(run.energies(), alone, strict=True):
        assert row.members == pytest.approx(expected.members, abs=1e-5)
    assert scored.dtype == "float32"
