"""Scorers that differ in one thing, by hand, and the cells of the paper's tables that they fill."""

import pytest
from hand_made import cell, studied, table_of

from raydebm.evaluation.paper.reproduction import reproduction
from raydebm.evaluation.report.study_tables import variant_tables
from raydebm.evaluation.studies.scorers import ScoredRun, ScoredVariant, transfer, variant_study

QWEN, GEMMA = {"generator": "qwen-2.5-7b"}, {"generator": "gemma"}


@pytest.fixture(scope="module")
def several(make_pool):
    """Gemma's answer is right and selected in all of eight problems."""
    return [
        make_pool((0, QWEN | {"members": (1.0, 2.0)}), (1, GEMMA | {"members": (0.0, 1.0)}), problem_id=f"p{index}")
        for index in range(8)
    ]


@pytest.fixture(scope="module")
def single(make_pool):
    """The selection is right in two of the eight problems."""
    return [
        make_pool((int(index < 2), QWEN | {"members": (0.0,)}), (0, QWEN | {"members": (1.0,)}), problem_id=f"p{index}")
        for index in range(8)
    ]


def scored(name, pools, **changes):
    fields = {"lambda_": 1.0, "backbone": "b", "num_adapters": 2, "num_parameters": 1000}
    return ScoredVariant(name=name, pools=table_of(pools), **{**fields, **changes})


@pytest.fixture(scope="module")
def compared(several, single):
    alone = scored("alone", single, num_adapters=1, num_parameters=500)
    return variant_study([scored("whole", several), alone], title="Variants", seed=0)


def test_each_scorer_is_judged_on_its_own_candidates(compared):
    whole, alone = compared.rows
    assert (whole.by_mu.pass_at_1.value, alone.by_mu.pass_at_1.value) == (1.0, 0.25)
    assert (whole.generators, alone.generators) == (("gemma", "qwen-2.5-7b"), ("qwen-2.5-7b",))


def test_a_single_adapter_has_no_sigma(compared):
    assert compared.rows[1].by_mu.sigma_auroc.value is None
    assert variant_tables(compared)[0].rows[1][-2:] == ("-", "-")


def test_the_difference_is_paired_over_the_problems(compared):
    comparison = compared.comparison("alone", "whole", "mu")
    assert (comparison.difference.value, comparison.difference.n, comparison.only_other) == (-0.75, 8, 6.0)
    assert comparison.test == "McNemar, exact"


def test_a_scorer_of_one_generator_is_compared_with_those_of_several_that_have_as_many_candidates(several, single):
    rows = [scored("first", several), scored("two", several), scored("one", single)]
    study = variant_study(rows, title="", seed=0)
    assert study.comparison("one", "two", "E").difference.value == -0.75


def test_a_variant_on_fewer_problems_is_compared_on_these(several, single):
    study = variant_study([scored("whole", several), scored("alone", single[:4])], title="", seed=0)
    assert study.comparison("alone", "whole", "E").difference.n == 4


@pytest.fixture(scope="module")
def reproduced(several, single, compared):
    studies = [
        studied(pools, task="gsm8k", name=name, subject={"backbone": "b"})
        for name, pools in (("whole", several), ("alone", single))
    ]
    runs = [
        ScoredRun(source="whole", target="whole", pools=table_of(several), in_domain=True),
        ScoredRun(source="alone", target="whole", pools=table_of(several)),
    ]
    matrix = transfer(runs, title="Pools")
    return reproduction(studies, transfers=[matrix], variants=[compared], command="raydebm reproduce")


@pytest.mark.parametrize(
    ("label", "row", "value"),
    [
        ("tab:single_multi", "Single-model EBM", 0.25),
        ("tab:single_multi", "Multi-model EBM", 1.0),
        ("tab:single_multi", "Delta", 0.75),
        ("tab:cross_pool", "Single-train, single-test", 0.25),
        ("tab:cross_pool", "Single-train, multi-test", 1.0),
        ("tab:cross_pool", "Multi-train, multi-test", 1.0),
    ],
)
def test_tables_of_one_generator_and_several_are_filled(reproduced, label, row, value):
    assert cell(reproduced, label, row).estimate.value == value


def test_without_a_scorer_of_one_generator_the_cells_say_what_makes_one(several):
    whole = studied(several, task="gsm8k", name="whole")
    absent = cell(reproduction([whole]), "tab:cross_pool", "Single-train, single-test")
    assert absent.measured is None
    assert "a variant with one of the recipe's `generators` makes one" in absent.reason
