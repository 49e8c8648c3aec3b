"""The problems of a recipe: the paper's where it says so."""

import json

import pytest

from raydebm.config import parse_recipe
from raydebm.errors import TaskDataError
from raydebm.pipeline.stages.problems import load_problems


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


def test_a_recipe_has_what_its_sources_hold(recipe):
    assert [split for split, _, _ in load_problems(recipe())] == ["train", "test"]


def test_the_papers_data_is_the_papers_or_nothing(recipe):
    with pytest.raises(TaskDataError, match="gsm8k train: the source lacks 7473 of the paper's 7473 problems"):
        list(load_problems(recipe(data="paper")))
