"""Selection by mu alone is one figure, whichever table shows it."""

import math

import hand_made
import pytest
from hand_made import cell, table_of

from raydebm.evaluation.paper.reproduction import reproduction
from raydebm.evaluation.studies.scorers import ScoredRun, ScoredVariant, transfer, variant_study


@pytest.fixture(scope="module")
def pools(make_pool):
    """Four problems, two with a text of the lowest mu that has no answer; by mu three choices among the others are
    right, by E two."""
    unparsed = (0, {"members": (-9.0, -8.0), "penalty": math.inf, "generator": "h"})
    right, wrong = (
        (label, {"members": (mu, mu + 1), "penalty": penalty, "generator": generator})
        for label, mu, penalty, generator in ((1, 0.0, 2.0, "g"), (0, 1.0, 0.0, "h"))
    )
    free = (1, {**right[1], "penalty": 0.0})
    rows = [[free, wrong, unparsed], [free, wrong, unparsed], [right, wrong], [wrong, (0, {**right[1]})]]
    return [make_pool(*each, problem_id=f"p{index}") for index, each in enumerate(rows)]


@pytest.fixture(scope="module")
def study(pools):
    return hand_made.studied(pools, task="gsm8k", name="pool")


def test_every_table_has_the_same_figure_by_mu_alone(pools, study):
    matrix = transfer([ScoredRun(source="s", target="t", pools=table_of(pools))], title="")
    variant = ScoredVariant(
        name="v", pools=table_of(pools), lambda_=1.0, backbone="b", num_adapters=2, num_parameters=1
    )
    figures = {
        "selectors": study.evaluation.row("mu only").pass_at_1,
        "K": study.ensemble_sizes[-1].mu_pass_at_1,
        "N": study.pool_sizes[-1].pass_at_1["mu only"],
        "selective": study.evaluation.mu_selective[0].pass_at_1,
        "pass@n": study.evaluation.pass_at_n[0].by_mu,
        "transfer": matrix.cells[0].by_mu.pass_at_1,
        "variants": variant_study([variant], title="", seed=0).rows[0].by_mu.pass_at_1,
    }

    assert {name: estimate.value for name, estimate in figures.items()} == dict.fromkeys(figures, 0.75)
    assert study.evaluation.row("energy (paper)").pass_at_1.value == 0.5


def test_an_adapter_alone_is_the_sweep_at_one_adapter(study):
    alone = [study.evaluation.row(f"adapter member {index}").pass_at_1.value for index in (1, 2)]

    assert study.ensemble_sizes[0].mu_pass_at_1.value == pytest.approx(sum(alone) / 2) == 0.75


@pytest.mark.parametrize(("label", "row"), [("tab:full_k_sweep", "K=1, ModernBERT"), ("tab:selective", "0%")])
def test_a_cell_says_what_mu_alone_is(study, label, row):
    assert "; by mu alone 75.0 [" in cell(reproduction([study]), label, row).measured


@pytest.mark.parametrize(("label", "row"), [("tab:full_k_sweep", "K=1, ModernBERT"), ("tab:selective", "0%")])
def test_a_cell_says_where_mu_alone_is_the_same(make_pool, label, row):
    pools = [make_pool((1, {"members": (0.0, 1.0), "generator": "g"}), (0, {"members": (1.0, 2.0), "generator": "h"}))]
    same = hand_made.studied(pools, task="gsm8k", name="pool")

    assert cell(reproduction([same]), label, row).measured.endswith("; the same by mu alone")


def test_an_in_domain_cell_of_transfer_shows_both(study):
    measured = cell(reproduction([study]), "tab:full_transfer", "GSM8K (MB)").measured

    assert measured.startswith("75.0 [")
    assert "; by E 50.0 [" in measured


def test_a_transferred_cell_says_where_e_is_the_same(make_pool):
    pools = [
        make_pool((1, {"members": (0.0,)}), (0, {"members": (0.5,)}), problem_id=f"p{index}") for index in range(30)
    ]
    run = ScoredRun(source="MuSR (MB)", target="GSM8K", pools=table_of(pools))
    matrix = transfer([run], title="t")

    measured = cell(reproduction([], transfers=[matrix]), "tab:full_transfer", "MuSR (MB)").measured

    assert measured == "100.0 [88.4, 100.0], n=30; the same by E"
