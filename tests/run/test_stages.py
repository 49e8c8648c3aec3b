"""The graph of stages."""

import pytest

from raydebm.run.stages import STAGES, stage_named


def test_the_stages_in_their_order():
    names = " ".join(stage.name for stage in STAGES)

    assert names == "problems candidates labels pairs scorer energies scores calibration passes baselines evaluation"


def test_a_stage_depends_on_the_sections_of_all_stages_before_it():
    assert stage_named("pairs").settings == ("task", "seed", "generators", "generation", "pairs")


def test_the_chain_of_a_stage_ends_with_it():
    assert [stage.name for stage in stage_named("labels").chain] == ["problems", "candidates", "labels"]


def test_a_chain_leaves_out_stages_that_are_not_read():
    assert {"scores", "baselines", "passes"}.isdisjoint(stage.name for stage in stage_named("energies").chain)


def test_every_section_of_a_recipe_matters_first_to_one_stage():
    sections = [section for stage in STAGES for section in stage.sections]

    assert len(sections) == len(set(sections))


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_the_documents_name_what_a_stage_writes(repository, stage):
    """The table of docs/architecture.md has a row per stage with its files."""
    page = (repository / "docs" / "architecture.md").read_text(encoding="utf-8")
    flow = page.partition("\n## The flow\n")[2].partition("\n### ")[0]
    (row,) = [line for line in flow.splitlines() if line.startswith(f"| {stage.name} |")]

    assert [name for name in stage.writes if name.split(".")[0].rstrip("/") not in row] == []
