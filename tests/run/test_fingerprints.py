"""What makes a stage run again, and what does not."""

import compileall
import copy

import pytest

from raydebm.config import parse_recipe
from raydebm.run.directory import RunDir
from raydebm.run.fingerprints import current_manifest, new_manifest, stage_fingerprint, why_not_current
from raydebm.run.stages import REPAIRED

TASK = {
    "name": "routing",
    "prompt": "Which device?",
    "output": {"kind": "json", "schema": {"type": "object", "properties": {"device": {"type": "string"}}}},
}
TREE = {
    "name": "tiny",
    "task": {"name": "gsm8k"},
    "generators": [{"kind": "openai", "name": "ada", "model": "m", "base_url": "http://127.0.0.1:9/v1"}],
}


def fingerprint(stage, **changes):
    return stage_fingerprint(stage, parse_recipe(TREE | changes), RunDir("no-run"))


@pytest.mark.parametrize("changed", [{"max_in_flight": 3}, {"timeout_s": 9.0}, {"max_retries": 1}])
def test_how_fast_a_generator_is_asked_repeats_nothing(changed):
    assert fingerprint("candidates", generators=[TREE["generators"][0] | changed]) == fingerprint("candidates")


def test_a_baseline_that_is_evidence_calibrates_again():
    reward = {"kind": "reward_model", "name": "reward", "model": "m"}

    assert fingerprint("calibration", baselines=[reward]) == fingerprint("calibration")
    assert fingerprint("calibration", baselines=[{**reward, "evidence": True}]) != fingerprint("calibration")


@pytest.mark.parametrize(
    ("scored", "stage", "reason"),
    [
        ("scores", "calibration", "scores made again"),
        ("baselines", "calibration", None),
        ("baselines", "evaluation", "baselines made again"),
    ],
)
def test_scores_of_evidence_calibrate_again_and_those_of_others_only_evaluate(tmp_path, scored, stage, reason):
    recipe, run = parse_recipe(TREE), RunDir(str(tmp_path / "run"))
    for name in (scored, stage, scored):
        run.finish(name, new_manifest(name, recipe, run, facts={}))

    assert why_not_current(stage, recipe, run) == reason


@pytest.mark.parametrize(
    "changed", [{"scorer": {"pooling": "mean"}}, {"training": {"learning_rate": 0.5}}, {"pairs": {"max_correct": 2}}]
)
def test_what_is_learnt_trains_again(changed):
    assert fingerprint("scorer", **changed) != fingerprint("scorer")


def test_what_is_read_of_a_candidate_makes_pairs_again():
    assert fingerprint("pairs", scorer={"reasoning": "all"}) != fingerprint("pairs")
    assert fingerprint("pairs", scorer={"pooling": "mean"}) == fingerprint("pairs")


@pytest.fixture
def extension(tmp_path, monkeypatch):
    """The file of a module that adds something."""
    file = tmp_path / "an_extension_of_mine.py"
    file.write_text("NUMBER = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RAYDEBM_EXTENSIONS", file.stem)
    return file


@pytest.mark.parametrize(("stage", "is_kept"), [("energies", True), ("calibration", False), ("evaluation", False)])
def test_a_changed_extension_decides_and_reports_again(extension, tmp_path, stage, is_kept):
    recipe, run = parse_recipe(TREE), RunDir(str(tmp_path / "run"))
    run.finish(stage, new_manifest(stage, recipe, run, facts={}))
    assert current_manifest(stage, recipe, run) is not None

    extension.write_text("NUMBER = 22\n")

    assert (current_manifest(stage, recipe, run) is not None) is is_kept


def test_an_extension_that_was_compiled_has_not_changed(tmp_path, monkeypatch):
    package = tmp_path / "a_package_of_mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RAYDEBM_EXTENSIONS", package.name)
    recipe, run = parse_recipe(TREE), RunDir(str(tmp_path / "run"))
    run.finish("calibration", new_manifest("calibration", recipe, run, facts={}))

    compileall.compile_dir(package, quiet=1)

    assert current_manifest("calibration", recipe, run) is not None


def test_an_extension_that_is_not_found_is_no_matter_of_stages(tmp_path, monkeypatch):
    monkeypatch.setenv("RAYDEBM_EXTENSIONS", "no_such_module_anywhere, no_such_package.module")
    recipe, run = parse_recipe(TREE), RunDir(str(tmp_path / "run"))

    run.finish("calibration", new_manifest("calibration", recipe, run, facts={}))

    assert current_manifest("calibration", recipe, run) is not None


def test_a_tasks_own_field_counts_whatever_its_name():
    other = copy.deepcopy(TASK)
    other["output"]["schema"]["properties"]["device"]["type"] = "integer"
    prints = [fingerprint("problems", task={"name": "routing", "definition": task}) for task in (TASK, other)]
    assert prints[0] != prints[1]


@pytest.fixture
def sourced(tmp_path):
    """(a recipe whose problems and pool are files, the file of problems, the pool, a run directory)"""
    source, pool = tmp_path / "train.jsonl", tmp_path / "pool.jsonl"
    source.write_text("one\n")
    pool.write_text("answers\n")
    part = {"split": "train", "source": str(source)}
    generator = {"kind": "recorded", "name": "ada", "model": "m", "pool": str(pool)}
    tree = TREE | {"task": {"name": "gsm8k", "train": part, "test": part}, "generators": [generator]}
    return parse_recipe(tree), source, pool, RunDir(str(tmp_path / "run"))


def made(recipe, run, *stages):
    for stage in stages:
        run.finish(stage, new_manifest(stage, recipe, run, facts={}))


def test_an_edited_file_of_problems_makes_them_again(sourced):
    recipe, source, _, run = sourced
    made(recipe, run, "problems")
    source.write_text("one, corrected\n")

    assert current_manifest("problems", recipe, run) is None


def test_a_longer_pool_draws_again_and_leaves_the_problems_alone(sourced):
    recipe, _, pool, run = sourced
    made(recipe, run, "problems", "candidates")
    pool.write_text("answers\nmore answers\n")

    assert current_manifest("problems", recipe, run) is not None
    assert current_manifest("candidates", recipe, run) is None


def test_a_file_that_is_not_here_is_believed(sourced):
    """A run directory is served and exported where its data is not."""
    recipe, source, pool, run = sourced
    made(recipe, run, "problems", "candidates")
    source.unlink()
    pool.unlink()

    assert current_manifest("candidates", recipe, run) is not None


def test_a_stage_that_is_made_again_makes_what_follows_again(sourced):
    recipe, _, _, run = sourced
    made(recipe, run, "problems", "candidates", "labels")
    made(recipe, run, "candidates")

    assert current_manifest("labels", recipe, run) is None
    assert current_manifest("candidates", recipe, run) is not None


def test_a_changed_tokenizer_of_a_local_backbone_trains_again(tmp_path):
    for name in ("model.bin", "tokenizer.json"):
        (tmp_path / name).write_text("a")
    recipe, run = parse_recipe(TREE | {"scorer": {"backbone": str(tmp_path)}}), RunDir(str(tmp_path / "run"))
    made(recipe, run, "scorer")
    (tmp_path / "tokenizer.json").write_text("bb")

    assert current_manifest("scorer", recipe, run) is None


# ---- folders, and reasons ------------------------------------------------------------------------------------------


@pytest.fixture
def in_folders(tmp_path):
    """(a recipe whose pool is a folder, the folder, a run directory)"""
    pool = tmp_path / ".hidden" / "pool"
    pool.mkdir(parents=True)
    (pool / "candidates.parquet").write_text("answers")
    (pool / "README.md").write_text("About these answers.")
    generator = {"kind": "recorded", "name": "ada", "model": "m", "pool": str(pool)}
    return parse_recipe(TREE | {"generators": [generator]}), pool, RunDir(str(tmp_path / "run"))


@pytest.mark.parametrize(
    ("file", "is_data"),
    [
        ("README.md", False),
        ("LICENSE", False),
        ("NOTICE.txt", False),
        (".gitattributes", False),
        (".cache/lock", False),
        ("candidates.parquet", True),
        ("vocabulary.txt", True),
        ("notice.jsonl", True),
    ],
)
def test_of_a_folder_its_data_counts_and_no_page_about_it(in_folders, file, is_data):
    recipe, pool, run = in_folders
    made(recipe, run, "problems", "candidates")

    (pool / file).parent.mkdir(exist_ok=True)
    (pool / file).write_text("Something else.")

    assert (current_manifest("candidates", recipe, run) is None) is is_data


def test_a_stage_that_is_not_current_says_why(sourced):
    recipe, _, pool, run = sourced
    assert why_not_current("candidates", recipe, run) == "not complete"

    made(recipe, run, "problems", "candidates")
    assert why_not_current("candidates", recipe, run) is None

    pool.write_text("other answers\n")
    assert why_not_current("candidates", recipe, run) == f"content of {str(pool)!r} changed"

    made(recipe, run, "candidates")
    made(recipe, run, "problems")
    assert why_not_current("candidates", recipe, run) == "problems made again"

    other = parse_recipe({**recipe.model_dump(mode="json", by_alias=True), "seed": 5})
    assert why_not_current("candidates", other, run) == (
        f"made with other settings ({run.uri('recipe.json')} has those of the last run)"
    )


def test_a_stage_of_another_version_says_so(sourced):
    recipe, _, _, run = sourced
    manifest = new_manifest("problems", recipe, run, facts={})
    run.finish("problems", {**manifest, "fingerprint": "other", "version": "0.0.1"})

    assert why_not_current("problems", recipe, run).startswith("made by raydebm 0.0.1, and this is ")


def test_energies_of_a_changed_scorer_that_were_made_out_of_bag_are_made_again(tmp_path):
    recipe, run = parse_recipe(TREE | {"decision": {"max_passes": 1}}), RunDir(str(tmp_path))
    trained = stage_fingerprint("energies", recipe, run)

    run.write_json({}, REPAIRED.marker)

    assert stage_fingerprint("energies", recipe, run) != trained
