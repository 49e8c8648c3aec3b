"""Variants of one run, on a real Ray: what they share with it, what they train, and what the report says of them."""

import shutil
from dataclasses import replace
from unittest import mock

import pytest

from raydebm.config import VariantConfig
from raydebm.errors import PoolError
from raydebm.pipeline.studies.repair import repair_run
from raydebm.pipeline.studies.reproduction import reproduce, trained_weights
from raydebm.pipeline.studies.variants import make_variants, take_over
from raydebm.run.directory import RunDir

pytestmark = pytest.mark.ray

ONE_ADAPTER = [{"name": "m0", "rank": 2, "alpha": 4, "targets": ["Wqkv"]}]
VARIANTS = (
    VariantConfig(name="single", generators=("bo",), num_samples=2, scorer={"adapters": ONE_ADAPTER}),
    VariantConfig(name="repaired", repair=True),
)


@pytest.fixture(scope="module")
def run(finished, tmp_path_factory):
    """A copy of the finished run, whose recipe has variants now and one pass, so that none of them samples again."""
    original, _, _ = finished
    folder = tmp_path_factory.mktemp("with-variants") / "run"
    shutil.copytree(original.run.root, folder)
    one_pass = original.recipe.decision.model_copy(update={"max_passes": 1})
    changes = {"run_dir": str(folder), "variants": VARIANTS, "decision": one_pass}
    return replace(original, recipe=original.recipe.model_copy(update=changes), on_stage=[].append)


@pytest.fixture(scope="module")
def report(run, tmp_path_factory):
    """(the reproduction, what the stages reported, where)."""
    folder, stages = tmp_path_factory.mktemp("reproduction"), []
    # As on a cluster of our own, which saves a helper process for every adapter.
    with mock.patch("raydebm.pipeline.ray.train.is_own_cluster", return_value=True):
        repair_run(run, min_cell=4)
        reproduction, _ = reproduce([replace(run, on_stage=stages.append)], run=RunDir(str(folder)))
    return reproduction, stages, folder


def test_the_run_its_variants_and_its_repair_are_studied(report):
    reproduction, _, _ = report
    assert [study.name for study in reproduction.studies] == [
        "tiny (knights_knaves)",
        "tiny, repaired (knights_knaves)",
        "tiny-single (knights_knaves)",
    ]


def test_a_variant_on_one_generator_has_its_first_samples_alone(report, run):
    single = RunDir(run.run.uri("variant-single"))
    candidates, labels = single.candidates(), single.labels()
    assert {candidate.generator for candidate in candidates} == {"bo"}
    assert {candidate.sample_index for candidate in candidates if not candidate.is_greedy} == {0, 1}
    assert sorted(row.candidate_id for row in candidates) == sorted(row.candidate_id for row in labels)


def cell(reproduction, label, row, column):
    table = next(table for table in reproduction.tables if table.label == label)
    return dict(table.rows)[row][table.columns.index(column)]


def test_the_single_row_is_of_the_scorer_that_was_trained_on_one_generator(report):
    reproduction, _, _ = report
    single = next(study for study in reproduction.studies if study.name.startswith("tiny-single"))
    shown = cell(reproduction, "tab:single_multi", "Single-model EBM", "K&K")
    assert shown.estimate == single.evaluation.row("energy (paper)").pass_at_1
    assert "bo, 2 candidates" in shown.reason


def test_the_difference_to_several_generators_is_paired(report):
    reproduction, _, _ = report
    (variants,) = reproduction.variants
    comparison = variants.comparison("tiny-single (knights_knaves)", "tiny (knights_knaves)", "E")
    assert cell(reproduction, "tab:single_multi", "Delta", "K&K").estimate == -comparison.difference


def test_trained_parameters_are_those_of_adapter_and_head(report, run):
    """Head of width 64: LayerNorm 2 * d, Linear d * d + d, Linear d + 1; adapters as ``adapter_size`` counts them."""
    from adapter_sizes import adapter_size
    from transformers import AutoConfig

    from raydebm.embedded import embedded_path

    size = adapter_size(run.recipe.scorer.adapters[0], AutoConfig.from_pretrained(embedded_path("encoder-mini")))
    assert trained_weights(run.run, ["a0"]) == (1, sum(size))


def test_new_candidates_of_the_run_reach_its_variants(report, run, tmp_path):
    copied = tmp_path / "run"
    shutil.copytree(run.run.root, copied)
    changes = {"run_dir": str(copied), "variants": VARIANTS[:1]}
    other = replace(run, recipe=run.recipe.model_copy(update=changes))
    family = make_variants(other)
    single = family.on_fewer_generators[0]
    manifest = other.run.manifest("candidates")
    other.run.finish("candidates", {**manifest, "making": "another"})
    before = single.run.manifest("candidates")["making"]
    take_over(other, single)
    assert single.run.manifest("candidates")["making"] != before


def test_a_variant_whose_generator_wrote_nothing_is_refused(report, run, tmp_path):
    copied = RunDir(str(tmp_path / "run"))
    for stage in ("problems", "candidates", "labels"):
        run.run.copy_stage(stage, copied)
    copied.write_candidates([candidate for candidate in copied.candidates() if candidate.generator != "bo"])
    other = replace(run, recipe=run.recipe.model_copy(update={"run_dir": copied.root}))
    child = replace(
        run, recipe=run.recipe.with_variant(VARIANTS[0]).model_copy(update={"run_dir": copied.uri("variant-single")})
    )
    with pytest.raises(PoolError, match="no candidate of bo"):
        take_over(other, child)
