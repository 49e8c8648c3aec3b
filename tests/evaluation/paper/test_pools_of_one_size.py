"""One generator against several: pools of one size are compared where they were given."""

import hand_made
import pytest
from hand_made import cell, table_of

from raydebm.evaluation.paper.reproduction import reproduction
from raydebm.evaluation.studies.scorers import ScoredVariant, variant_study


def pools_of(make_pool, generators, num_right, num_each=1):
    """Eight problems; the selection, the first generator's first candidate, is right in the first few of them."""
    return [
        make_pool(
            *[
                (int(place == 0 and index < num_right), {"members": (float(place), place + 1.0), "generator": name})
                for place, name in enumerate(generators * num_each)
            ],
            problem_id=f"p{index}",
        )
        for index in range(8)
    ]


@pytest.fixture(scope="module")
def pools(make_pool):
    """Name -> pools: four of two generators first, two of one generator, two of two generators."""
    return {
        "whole": pools_of(make_pool, ["gemma", "qwen"], 8, num_each=2),
        "alone": pools_of(make_pool, ["qwen"], 2, num_each=2),
        "thinned": pools_of(make_pool, ["gemma", "qwen"], 5),
    }


@pytest.fixture(scope="module")
def studies(pools):
    return [hand_made.studied(part, task="gsm8k", name=name) for name, part in pools.items()]


@pytest.fixture(scope="module")
def compared(pools):
    variants = [
        ScoredVariant(name=name, pools=table_of(part), lambda_=1.0, backbone="b", num_adapters=2, num_parameters=1)
        for name, part in pools.items()
    ]
    return variant_study(variants, title="Variants", seed=0)


@pytest.mark.parametrize(("row", "value"), [("Single-model EBM", 0.25), ("Multi-model EBM", 0.625), ("Delta", 0.375)])
def test_one_generator_is_shown_with_as_many_candidates_of_several(studies, compared, row, value):
    measured = cell(reproduction(studies, variants=[compared]), "tab:single_multi", row)

    assert measured.estimate.value == value
    assert measured.reason == "single: alone, qwen, 2 candidates, multi: thinned, 2 generators, 2 candidates"


def test_without_a_pool_of_the_same_size_the_cell_says_so(studies):
    measured = cell(reproduction(studies[:2]), "tab:single_multi", "Multi-model EBM")

    assert measured.estimate.value == 1.0
    assert measured.reason.endswith("multi: whole, 2 generators, 4 candidates; of different sizes, unlike the paper's")


def test_transfer_between_pools_stays_with_the_whole_pool(studies):
    assert cell(reproduction(studies), "tab:cross_pool", "Multi-train, multi-test").estimate.value == 1.0
