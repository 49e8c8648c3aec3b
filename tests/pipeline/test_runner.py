"""The pipeline end to end on embedded models and a real Ray: every stage, reuse, replay, and what is refused."""

import json
import shutil

import pytest
from tiny_run import recipe_of

from raydebm.errors import ConfigError, MissingKeyError, PoolError, TaskDataError, UnknownNameError
from raydebm.pipeline.pools import calibrated_policy, recorded_candidates
from raydebm.pipeline.runner import Pipeline
from raydebm.records import Candidate, CandidateScore
from raydebm.run.ensemble_file import read_ref
from raydebm.run.fingerprints import new_manifest
from raydebm.run.stages import REPAIRED, STAGES

pytestmark = pytest.mark.ray


def test_energies_exist_for_validation_and_test_alone(finished):
    pipeline, _, _ = finished

    for name in ("validation", "test"):
        for scored in recorded_candidates(pipeline, name).values():
            assert (scored.energies is None) is scored.candidate.is_greedy


def test_an_empty_part_is_refused_and_named(local_ray, tmp_path):
    task = {
        "name": "knights_knaves",
        "train": {"split": "train", "source": "generate:2-3", "limit": 4, "id_range": [0.0, 1e-9]},
    }
    with pytest.raises(TaskDataError, match="no problems for train"):
        Pipeline(recipe=recipe_of(tmp_path, task=task)).make("problems")


def test_an_unknown_task_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UnknownNameError, match=r"'knights_knave'.*did you mean 'knights_knaves'"):
        Pipeline(recipe=recipe_of(tmp_path / "run", task={"name": "knights_knave"})).make("problems")
    assert not (tmp_path / "run").exists()


def test_a_key_is_needed_only_where_candidates_are_still_to_be_drawn(tmp_path, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    endpoint = {"kind": "openai", "name": "e", "model": "m", "api_key_env": "NO_SUCH_KEY"}
    pipeline = Pipeline(recipe=recipe_of(tmp_path, generators=[endpoint]))

    with pytest.raises(MissingKeyError, match="NO_SUCH_KEY"):
        pipeline.check_keys()
    pipeline.run.finish("candidates", new_manifest("candidates", pipeline.recipe, pipeline.run, facts={}))
    pipeline.check_keys()


@pytest.mark.parametrize(("num_failed", "is_kept"), [(1, False), (0, True)])
def test_only_failed_requests_are_asked_again_on_demand(tmp_path, num_failed, is_kept):
    pipeline = Pipeline(recipe=recipe_of(tmp_path))
    facts = {"num_failed": num_failed}
    pipeline.run.finish("candidates", new_manifest("candidates", pipeline.recipe, pipeline.run, facts=facts))
    pipeline.forget_failed()

    assert (pipeline.run.manifest("candidates") is not None) is is_kept


@pytest.fixture
def complete(tmp_path):
    """A run whose stages are all complete, by their manifests alone."""
    pipeline = Pipeline(recipe=recipe_of(tmp_path / "complete"))
    for stage in STAGES:
        pipeline.run.finish(stage.name, new_manifest(stage.name, pipeline.recipe, pipeline.run, facts={}))
    pipeline.run.write_recipe(pipeline.recipe)
    return pipeline


def answer(candidate_id, text):
    return Candidate(candidate_id=candidate_id, task="toy", problem_id="p", generator="bo", text=text)


@pytest.mark.parametrize(("split", "stage"), [("validation", "calibration"), ("test", "passes")])
def test_only_failed_requests_of_later_passes_are_missed_on_demand(complete, split, stage):
    later, run = f"regenerated/{split}-1", complete.run
    run.write_candidates([answer("answered", "4"), answer("failed", None)], later)
    run.finish(later, {"fingerprint": complete.basis("energies"), "requests": 2})

    complete.forget_failed()

    assert [candidate.candidate_id for candidate in run.candidates(later)] == ["answered"]
    assert run.manifest(stage) is None


@pytest.mark.parametrize(("changed", "kept"), [({"pooling": "mean"}, False), ({"micro_batch_tokens": 512}, True)])
def test_a_recipe_that_makes_nothing_is_kept_unless_it_would_make_something_stale(complete, changed, kept):
    other = complete.recipe.model_copy(update={"scorer": complete.recipe.scorer.model_copy(update=changed)})

    Pipeline(recipe=other).make("labels")

    assert complete.run.recipe().scorer == (other if kept else complete.recipe).scorer


def rated(tmp_path, *errors, kind="judge"):
    """A run of which an endpoint and EORM have scored answers, apart from those with an error."""
    endpoint = {"kind": "openai", "name": "e", "model": "m", "base_url": "http://127.0.0.1:9/v1"}
    asked = {"kind": kind, "name": "strict", "generator": endpoint}
    pipeline = Pipeline(recipe=recipe_of(tmp_path, baselines=[asked, {"kind": "eorm", "name": "eorm"}]))
    for name in ("strict", "eorm"):
        pipeline.run.write_scores(
            (
                CandidateScore(candidate_id=str(index), name=name, score=None if error else 1.0, error=error)
                for index, error in enumerate(errors)
            ),
            name,
        )
        pipeline.run.write_json({"basis": "b"}, "scores", f"{name}.state.json")
    for stage in ("scores", "calibration", "baselines"):
        pipeline.run.finish(stage, {})
    return pipeline


def test_ratings_that_failed_are_made_again_on_demand_and_other_scores_kept(tmp_path):
    pipeline = rated(tmp_path, None, "the server is away")
    pipeline.forget_failed()

    states = [pipeline.run.read_json("scores", f"{name}.state.json") for name in ("strict", "eorm")]
    assert states == [{"basis": "b", "again": True}, {"basis": "b"}]
    open_ones = [stage for stage in ("scores", "calibration", "baselines") if pipeline.run.manifest(stage) is None]
    assert open_ones == ["baselines"]


def test_the_folder_of_a_repair_is_never_trained(local_ray, finished, tmp_path):
    recipe = recipe_of(shutil.copytree(finished[0].run.root, tmp_path / "run"), training={"max_epochs": 2})
    pipeline = Pipeline(recipe=recipe)
    pipeline.run.write_json({}, REPAIRED.marker)

    with pytest.raises(ConfigError, match=r"directory of a repair.*confounding --repair"):
        pipeline.make("scorer")


def test_the_calibrated_policy_names_the_scorer_that_gave_its_energies(finished):
    scorer = read_ref(finished[0].run.uri("scorer"))

    assert calibrated_policy(finished[0]).posterior.checkpoint == scorer.fingerprint


def test_a_reader_that_is_added_calibrates_again_with_its_scores_of_every_pass(finished, tmp_path):
    root, reports = shutil.copytree(finished[0].run.root, tmp_path / "run"), []
    reader = {"kind": "reader", "name": "reader", "model": "embedded:kk-bo"}
    pipeline = Pipeline(recipe=recipe_of(root, baselines=[reader]), on_stage=reports.append)
    pipeline.make("calibration")

    assert [report.stage for report in reports if not report.reused] == ["scores", "calibration"]
    assert {"score:reader", "score:reader.logprob", "score:reader.worst"} <= set(
        calibrated_policy(pipeline).posterior.weights
    )
    for scored in recorded_candidates(pipeline, "validation").values():
        assert bool(scored.scores) is (bool(scored.candidate.text) and not scored.candidate.is_greedy)


def test_a_pool_without_a_single_pair_is_refused_and_the_candidates_are_kept(local_ray, tmp_path):
    """Recorded answers that all say nothing: every candidate is incorrect, so nothing can be learned."""
    first = Pipeline(recipe=recipe_of(tmp_path / "run"))
    first.make("problems")
    pool = tmp_path / "pool.jsonl"
    rows = [{"problem_id": problem_id, "model": "m", "text": "I do not know."} for problem_id in first.problems()]
    pool.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    recorded = [{"kind": "recorded", "name": "m", "model": "m", "pool": str(pool), "num_samples": 1}]
    pipeline = Pipeline(recipe=recipe_of(tmp_path / "run", generators=recorded, generation={"greedy": False}))

    with pytest.raises(PoolError, match="incorrect"):
        pipeline.make("pairs")
    assert len(pipeline.run.candidates()) == 22
