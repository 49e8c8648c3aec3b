"""The problems of a recipe: the paper's where it says so, and made again when what they are read from changes."""

import contextlib
import gzip
import json

import pytest

from raydebm.config import parse_recipe
from raydebm.errors import TaskDataError
from raydebm.pipeline.plan import plan_of
from raydebm.pipeline.runner import Pipeline
from raydebm.pipeline.stages.problems import load_problems
from raydebm.pipeline.studies.variants import _write_problems
from raydebm.tasks import get_task
from raydebm.tasks.sources import recorded_lookups


@pytest.fixture
def recipe(tmp_path):
    for split, number in (("train", 1), ("test", 2)):
        row = {"question": f"How much is {number}?", "answer": f"#### {number}"}
        (tmp_path / f"{split}.jsonl").write_text(json.dumps(row) + "\n")
    sources = {split: {"split": split, "source": str(tmp_path / f"{split}.jsonl")} for split in ("train", "test")}

    def of(**task):
        return parse_recipe(
            {
                "name": "x",
                "task": {"name": "gsm8k", **sources, **task},
                "generators": [{"kind": "openai", "name": "q", "model": "m"}],
            }
        )

    return of


def test_the_papers_data_is_the_papers_or_nothing(recipe):
    with pytest.raises(TaskDataError, match=r"gsm8k train: the source's [0-9]+ problems are not the paper's 7473"):
        list(load_problems(recipe(data="paper")))


@pytest.fixture
def in_a_folder(tmp_path):
    """(a folder with the problems and a run below it, the pipeline of the run)"""
    data = tmp_path / "data"
    data.mkdir()
    for split, number in (("train", 1), ("test", 2)):
        row = {"question": f"How much is {number}?", "answer": f"#### {number}"}
        (data / f"{split}.jsonl").write_text(json.dumps(row) + "\n")
    tree = {
        "name": "x",
        "run_dir": str(data / "runs" / "x"),
        "task": {"name": "gsm8k", **{split: {"split": split, "source": str(data)} for split in ("train", "test")}},
        "generators": [{"kind": "openai", "name": "q", "model": "m"}],
    }
    pipeline = Pipeline(recipe=parse_recipe(tree))
    pipeline.make("problems")
    return data, pipeline


def test_files_that_the_task_does_not_read_make_nothing_again(in_a_folder, caplog):
    data, pipeline = in_a_folder
    (data / "notes.txt").write_text("hello")
    (data / "more.jsonl").write_text("{}\n")
    before = pipeline.run.manifest("problems")

    pipeline.make("problems")

    assert (pipeline.run.manifest("problems"), caplog.text) == (before, "")


@pytest.mark.parametrize("name", ["test.jsonl", "problems_train.jsonl.gz"])
def test_files_that_the_task_reads_or_would_read_instead_make_the_problems_again_and_it_is_said(
    in_a_folder, caplog, name
):
    data, pipeline = in_a_folder
    row = json.dumps({"question": "How much is 3?", "answer": "#### 3"}) + "\n"
    (data / name).write_bytes(gzip.compress(row.encode()) if name.endswith(".gz") else row.encode())
    (note,) = [note for note in plan_of(pipeline.recipe).notes if note.startswith("stages to make")]

    pipeline.make("problems")

    reason = f"content of '{data}' changed"
    assert f"(problems: {reason}); complete: none" in note
    assert f"{pipeline.run.uri('problems')} is made again: {reason}" in caplog.text
    assert "How much is 3?" in [row.problem.prompt for row in pipeline.run.problems()]


@pytest.mark.parametrize(
    ("task", "names"),
    [
        ("knights_knaves", {"problems_kk_train.jsonl.gz", "train.jsonl"}),
        ("musr", {"train.jsonl", "*.json"}),
        ("travelplanner", {"problems_train.jsonl.gz", "train.jsonl"}),
        ("taco", {"problems_train.jsonl.gz"}),
        ("reasoning_gym", {"problems_train.jsonl.gz"}),
    ],
)
def test_a_task_says_what_it_looks_for_in_a_folder(tmp_path, task, names):
    with recorded_lookups() as lookups, contextlib.suppress(TaskDataError):
        list(get_task(task).load("train", source=str(tmp_path)))

    assert names <= lookups[tmp_path]


def test_a_variants_problems_count_the_same_files(in_a_folder):
    data, pipeline = in_a_folder
    variant = Pipeline(recipe=pipeline.recipe.model_copy(update={"run_dir": str(data / "runs" / "v")}))
    facts = _write_problems(pipeline, variant, {row.problem.problem_id for row in pipeline.run.problems()})

    assert facts["files"] == pipeline.run.facts("problems")["files"] != {}
