"""Distillation of a small finished run, on a real Ray."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from raydebm.config import DistillationConfig
from raydebm.errors import ConfigError
from raydebm.pipeline.studies.distill import distill_run
from raydebm.scorer.checkpoint import read_ensemble

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def run(finished, tmp_path_factory):
    """A copy of the finished run."""
    original, _, _ = finished
    folder = tmp_path_factory.mktemp("to-distill") / "run"
    shutil.copytree(original.run.root, folder)
    changes = {"run_dir": str(folder), "distillation": DistillationConfig(max_epochs=1)}
    return replace(original, recipe=original.recipe.model_copy(update=changes), on_stage=[].append)


@pytest.fixture(scope="module")
def distilled(run):
    study, address = distill_run(run)
    return study, Path(address).parents[1]


def student_of(run, distilled, **changes):
    return replace(run, recipe=run.recipe.model_copy(update={"run_dir": str(distilled[1])} | changes))


def test_the_student_is_a_run_with_two_members(run, distilled):
    record, _ = read_ensemble(distilled[1] / "scorer")
    assert record.adapters == ("low", "high")
    assert record.meta["distilled_from"] == run.run.root
    energies = student_of(run, distilled).run.energies()
    assert {len(row.energies.members) for row in energies if row.energies is not None} == {2}


def test_the_report_has_both_scorers_side_by_side(run, distilled):
    study, folder = distilled
    names = [row.name for row in study.variants.rows]
    assert names == ["tiny (knights_knaves)", "tiny, distilled (knights_knaves)"]
    assert study.variants.rows[1].num_adapters == 1
    assert "What distillation costs and saves" in (folder / "distillation" / "report.md").read_text()


def test_a_students_scorer_is_not_trained_in_its_own_directory(run, distilled):
    recipe = json.loads((distilled[1] / "recipe.json").read_text())
    assert [adapter["name"] for adapter in recipe["scorer"]["adapters"]] == ["low", "high"]
    other = student_of(run, distilled, scorer=run.recipe.scorer)
    with pytest.raises(ConfigError, match=r"is the directory of a distilled scorer.*`raydebm distill`"):
        other.make("scorer")
