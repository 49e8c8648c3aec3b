"""Two folds on the candidates of one run, on a real Ray."""

import json
import runpy
from pathlib import Path
from unittest import mock

import pyarrow.parquet as pq
import pytest
from tiny_run import recipe_of

from raydebm.config import parse_recipe
from raydebm.errors import ConfigError, PoolError
from raydebm.pipeline.context import TEST, VALIDATION
from raydebm.pipeline.runner import SHARED, Pipeline
from raydebm.pipeline.studies.trainings import check_classes, train_several
from raydebm.records import Label, Verdict
from raydebm.run.directory import RunDir

pytestmark = pytest.mark.ray


def small(recipe, folder):
    """One adapter and one pass, in another folder."""
    one_adapter = recipe.scorer.model_copy(update={"adapters": recipe.scorer.adapters[:1]})
    one_pass = recipe.decision.model_copy(update={"max_passes": 1})
    return recipe.model_copy(update={"run_dir": str(folder), "scorer": one_adapter, "decision": one_pass})


def trained_once_more(pipeline, **options):
    # As on a cluster of our own, which saves a helper process for every adapter.
    with mock.patch("raydebm.pipeline.ray.train.is_own_cluster", return_value=True):
        return train_several(pipeline, folds=2, **options)


@pytest.fixture(scope="module")
def trained(finished, tmp_path_factory):
    """(summary, run directory, what the stages reported) of two folds of one seed."""
    folder = tmp_path_factory.mktemp("folds")
    for stage in SHARED:  # the folds' own, were it not for the time that generating takes
        finished[0].run.copy_stage(stage, RunDir(str(folder)))
    reports = []
    pipeline = Pipeline(recipe=small(finished[0].recipe, folder), on_stage=reports.append)
    summary, address = trained_once_more(pipeline, seeds=[3])
    assert address == str(folder / "folds" / "report.html")
    return summary, folder, reports


def fold_run(folder, index):
    tree = json.loads((folder / f"fold-{index}" / "recipe.json").read_text())
    return Pipeline(recipe=parse_recipe(tree))


def test_every_problem_of_both_sources_is_tested_once(trained, finished):
    summary, folder, _ = trained
    tested = [name for index in (0, 1) for name in fold_run(folder, index).splits()[TEST]]

    assert sorted(tested) == sorted(finished[0].problems())
    assert (summary.num_problems, summary.folds) == (22, (0, 1))
    assert [facts.num_test for facts in summary.trainings] == [11, 11]


def test_folds_can_be_trained_and_scored_elsewhere(trained, finished, tmp_path):
    bench = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "folds_on_gpu.py"))
    recipe = small(finished[0].recipe, tmp_path / "run")
    for stage in SHARED:
        finished[0].run.copy_stage(stage, RunDir(recipe.run_dir))
    bench["pack"](recipe, tmp_path / "packed", num_folds=2)
    bench["train"](bench["arguments"](["train", f"{tmp_path}/packed", f"{tmp_path}/out", "--device", "cpu"]))
    summary, _ = bench["finish"](Pipeline(recipe=recipe), tmp_path / "out", num_folds=2)

    assert [facts.num_test for facts in summary.trainings] == [11, 11]
    for index in (0, 1):
        here, elsewhere = fold_run(trained[1], index), fold_run(tmp_path / "run", index)
        assert energies_of(elsewhere) == pytest.approx(energies_of(here), abs=1e-4)


def energies_of(pipeline):
    return {row.candidate_id: row.members[0] for row in pipeline.run.energies() if row.members is not None}


def test_no_fold_trains_or_chooses_on_what_it_tests(trained):
    _, folder, _ = trained
    for index in (0, 1):
        run = fold_run(folder, index)
        splits = run.splits()
        test = set(splits[TEST])
        assert test.isdisjoint(splits["train"] + splits[VALIDATION])
        for split in ("train", VALIDATION):
            paired = pq.read_table(folder / f"fold-{index}" / "pairs" / f"{split}.parquet")["problem_id"].to_pylist()
            assert test.isdisjoint(paired)
    assert set(fold_run(folder, 0).splits()[TEST]).isdisjoint(fold_run(folder, 1).splits()[TEST])


def test_candidates_and_labels_are_made_once(trained):
    _, folder, reports = trained
    assert {report.stage for report in reports if not report.reused} == {
        f"fold-{index} {stage}"
        for index in (0, 1)
        for stage in ("pairs", "scorer", "energies", "scores", "calibration", "passes", "baselines", "evaluation")
    }
    assert {(folder / place / "labels" / "labels.parquet").read_bytes() for place in (".", "fold-0", "fold-1")} == {
        (folder / "labels" / "labels.parquet").read_bytes()
    }


def test_finished_folds_are_reused_and_an_unfinished_one_goes_on(trained):
    """As after a kill in the second fold's evaluation."""
    summary, folder, _ = trained
    (folder / "fold-1" / "evaluation" / "manifest.json").unlink()
    reports = []
    again, _ = trained_once_more(
        Pipeline(recipe=small(fold_recipe(folder), folder), on_stage=reports.append), seeds=[3]
    )

    assert [report.stage for report in reports if not report.reused] == ["fold-1 evaluation"]
    assert again.to_json() == summary.to_json()


def fold_recipe(folder):
    """The recipe of the whole, from one of its folds."""
    recipe = fold_run(folder, 0).recipe
    return recipe.model_copy(update={"pairs": recipe.pairs.model_copy(update={"fold": None, "seed": None})})


def test_another_seed_of_each_fold_has_a_directory_in_the_folds(trained):
    _, folder, _ = trained
    recipe, reports = small(fold_recipe(folder), folder), []
    again, _ = trained_once_more(Pipeline(recipe=recipe, on_stage=reports.append), seeds=[3, 4])

    assert again.seeds == (3, 4)
    assert len(again.row("energy (paper)").by_seed) == 2
    assert {report.stage.split()[0] for report in reports if not report.reused} == {"fold-0/seed-4", "fold-1/seed-4"}
    splits = [Pipeline(recipe=recipe_at(folder / "fold-0" / place)).splits() for place in (".", "seed-4")]
    assert splits[0][TEST] == splits[1][TEST]
    assert splits[0]["train"] != splits[1]["train"]


def recipe_at(folder):
    return parse_recipe(json.loads((folder / "recipe.json").read_text()))


# ---- refused ---------------------------------------------------------------------------------------------------------


def test_a_recipe_that_is_a_fold_already_is_refused(tmp_path):
    recipe = recipe_of(tmp_path, pairs={"fold": [0, 2]})
    with pytest.raises(ConfigError, match=r"sets pairs\.fold"):
        train_several(Pipeline(recipe=recipe), folds=2, seeds=[0])


@pytest.mark.parametrize(("count", "message"), [(1, "at least 2 folds are needed, got 1"), (23, "at most 22 folds")])
def test_too_few_and_too_many_folds_are_refused_before_anything_is_drawn(tmp_path, count, message):
    with pytest.raises(ConfigError, match=message):
        train_several(Pipeline(recipe=recipe_of(tmp_path)), folds=count, seeds=[0])
    assert not (tmp_path / "candidates").exists()


def labels(**verdicts):
    return [
        Label(candidate_id=f"{problem_id}{index}", problem_id=problem_id, verdict=verdict)
        for problem_id, problem_verdicts in verdicts.items()
        for index, verdict in enumerate(problem_verdicts)
    ]


YES, NO, UNKNOWN = Verdict.CORRECT, Verdict.INCORRECT, Verdict.UNLABELED
FOLDS = {"p": 0, "q": 0, "r": 1}


@pytest.mark.parametrize(
    ("of_r", "message"),
    [
        ([YES, YES, UNKNOWN], "fold 1 of 2 cannot be tested: all labelled candidates are correct on its 1 problems"),
        ([NO], "fold 1 of 2 cannot be tested: all labelled candidates are incorrect"),
        ([UNKNOWN], "fold 1 of 2 cannot be tested: no candidate has a label"),
        ([], "fold 1 of 2 cannot be tested: no candidate has a label"),
    ],
)
def test_a_fold_without_both_classes_is_named(of_r, message):
    with pytest.raises(PoolError, match=message):
        check_classes(FOLDS, labels(p=[YES, NO], r=of_r))


def test_where_there_are_violation_scores_they_must_differ():
    def of(first, second):
        return [
            Label(candidate_id=f"{name}{index}", problem_id=name, verdict=NO, violation_score=score)
            for name in "pr"
            for index, score in enumerate((first, second))
        ]

    check_classes(FOLDS, of(0.1, 0.2))
    with pytest.raises(PoolError, match=r"fold 0 of 2 .* all labelled candidates are 0\.2"):
        check_classes(FOLDS, of(0.2, 0.2))


def test_a_fold_that_has_nothing_to_train_on_is_named(finished, tmp_path):
    """Every problem's candidates are all correct or all incorrect, so there are both classes and no pair."""
    for stage in SHARED:
        finished[0].run.copy_stage(stage, RunDir(str(tmp_path)))
    run = RunDir(str(tmp_path))
    verdicts = {name: (YES, NO)[index % 2] for index, name in enumerate(sorted(finished[0].problems()))}
    one_sided = [
        Label(
            candidate_id=candidate.candidate_id, problem_id=candidate.problem_id, verdict=verdicts[candidate.problem_id]
        )
        for candidate in finished[0].run.candidates()
    ]
    run.write_labels(one_sided)
    with pytest.raises(PoolError, match="fold 0 of 2: no pairs"):
        train_several(Pipeline(recipe=small(finished[0].recipe, tmp_path)), folds=2, seeds=[3])


@pytest.mark.parametrize("fold", [[2, 2], [-1, 2]])
def test_a_fold_that_is_none_of_the_folds_is_refused(tmp_path, fold):
    with pytest.raises(ConfigError, match=r"pairs\.fold: .*the number of folds"):
        recipe_of(tmp_path, pairs={"fold": fold})
