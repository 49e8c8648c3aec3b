"""Figures that the paper states in its text."""

from dataclasses import replace

import hand_made
import pytest
from hand_made import table_of

from raydebm.evaluation.paper.paper_cells import paper
from raydebm.evaluation.paper.reproduction import reproduction
from raydebm.evaluation.results.entries import DifficultyRow
from raydebm.evaluation.stats.intervals import Estimate
from raydebm.evaluation.studies.scorers import ScoredRun, transfer
from raydebm.evaluation.studies.study import Fit


def pools_of(make_pool, *, right=0.0, wrong=1.0):
    """Gemma has a correct candidate, llama an incorrect and a correct one, which is never selected."""
    return [
        make_pool(
            (1, {"members": (right, right + 0.1), "generator": "gemma"}),
            (0, {"members": (wrong, wrong + 0.1), "generator": "llama"}),
            (1, {"members": (5.0, 5.1), "generator": "llama"}),
            problem_id=f"p{index}",
            difficulty=["EASY", "HARD"][index % 2],
        )
        for index in range(4)
    ]


def studied(pools, task, *, name="run", train=(), **subject):
    return hand_made.studied(pools, task=task, name=name, subject=subject, train=train)


def claim(given, row, **others):
    text = next(table for table in reproduction(given, **others).tables if table.label == "text")
    return dict(text.rows)[row][0]


@pytest.fixture(scope="module")
def given(make_pool):
    """Scorers of three tasks; TACO's also repaired, which then selects what is wrong."""
    pools, fit = pools_of(make_pool), Fit(num_usable=12, num_pairs=90, losses=(0.3, 0.251), num_epochs=(3, 5))
    train = [make_pool((1, {}), (1, {}), problem_id=name) for name in ("all right", "all right, too")]
    train.append(make_pool((1, {}), (0, {}), problem_id="mixed"))
    found = {
        "wrong selections of the favourite with a right alternative": Estimate(value=2.0, low=None, high=None, n=7)
    }
    repaired = pools_of(make_pool, right=1.0, wrong=0.0)
    return [
        studied(pools, "gsm8k", name="sums", fit=fit, backbone="microsoft/deberta-v3-base", train=train),
        studied(pools, "musr", name="stories"),
        studied(pools, "taco", name="programs", findings=found),
        studied(repaired, "taco", name="repaired", repaired=True),
    ]


@pytest.mark.parametrize(
    ("row", "measured"),
    [
        ("GSM8K: usable training problems", "12"),
        ("GSM8K: pairs", "90"),
        ("GSM8K: lowest validation losses", "0.251-0.3"),
        ("GSM8K: epochs of the adapters", "3-5"),
        ("GSM8K (DeBERTa): epochs of the adapters", "3-5"),
        ("GSM8K: training problems with correct candidates alone", "2"),
        ("TACO (pre-DFR): gap between generators", "5.00"),
        ("TACO (pre-DFR): always the favourite generator", "100.0 [39.8, 100.0], n=4"),
        ("TACO (pre-DFR): wrong selections of the favourite with a right alternative", "2 of 7"),
        ("TACO (DFR): change on HARD problems", "-100.0 pp, n=2"),
        ("MuSR: problems without a correct candidate", "0.0 [0.0, 60.2], n=4"),
    ],
)
def test_a_figure_of_the_text(given, row, measured):
    assert claim(given, row).measured == measured


@pytest.fixture(scope="module")
def plans(make_pool):
    """Of a, b and c mu prefers a, E (1, 0.8, 1) b, and the constraint c, which alone violates nothing."""
    terms = [(0, 0.0, 1.0), (0, 0.4, 0.4), (1, 1.0, 0.0)]
    ratings = {"judge one": [1.0, 3.0, 2.0], "judge two": [2.0, 5.0, 4.0]}
    pools = [
        make_pool(
            *[(label, {"members": (mu,), "penalty": penalty}) for label, mu, penalty in terms],
            violations=[0.6, 0.3, 0.0], scores=ratings, problem_id=f"p{index}",
        )
        for index in range(4)
    ]  # fmt: skip
    return studied(pools, "travelplanner")


@pytest.mark.parametrize(
    ("row", "measured"),
    [
        ("zero-violation pass@1, energy (paper)", "0.0 ["),
        ("zero-violation pass@1, random", "33.3 ["),
        ("zero-violation pass@1, self-consistency", "33.3 ["),
        ("mean violation, mu only", "0.600 ["),
        ("mean violation, E_constraint only", "0.000 ["),
        ("the two terms agree on the pick", "0.0 ["),
        ("the pick is neither term's", "100.0 ["),
        ("two judges, Spearman", "1.00"),
        # Ratings 1, 3, 2 of violations in ranks 3, 2, 1: 1 - 6 * (4 + 1 + 1) / (3 * 8).
        ("judge and violation score, Spearman", "-0.50"),
        ("judge's rating of our selections", "3.000 ["),
        ("judge's rating of the oracle's selections", "2.000 ["),
        ("problems without a plan of no violation", "0.0 ["),
    ],
)
def test_a_figure_of_the_text_about_plans(plans, row, measured):
    assert claim([plans], f"TravelPlanner: {row}").measured.startswith(measured)


def test_sigma_of_a_scorer_on_another_task(make_pool, given):
    """The one wrong selection has the largest spread of the adapters."""
    pools = [
        make_pool((int(index > 0), {"members": (0.0, 1.0 + (index == 0))}), problem_id=f"p{index}")
        for index in range(6)
    ]
    matrix = transfer([ScoredRun(source="GSM8K", target="TP", pools=table_of(pools))], title="Transfer")
    plans = studied(pools, "travelplanner", name="plans")

    shown = claim([*given, plans], "GSM8K: sigma-AUROC on TP, by transfer", transfers=[matrix])

    assert shown.estimate.value == 1.0


def test_every_figure_of_the_text_has_a_value_or_a_reason(given):
    text = next(table for table in reproduction(given).tables if table.label == "text")

    assert len(text.rows) == len(paper().tables["text"].rows) == 55
    assert [name for name, (cell,) in text.rows if not cell.measured and not cell.reason] == []


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("TACO (pre-DFR): gap between generators, code only", "raydebm reproduce --confounding"),
        ("TACO (pre-DFR): change of mu in the style of Qwen", "no style swap was made"),
        ("TravelPlanner: connectivity holds, frontier models", "no scored pool of TravelPlanner"),
        ("K&K: change by two passes of one generator, 2 to 4 people", "no scored pool of K&K"),
        ("MuSR (DeBERTa): epochs of the adapters", "DeBERTa"),
    ],
)
def test_a_figure_of_the_text_that_is_missing_says_what_would_give_it(given, row, words):
    assert words in claim(given, row).reason


def test_without_a_repair_there_is_no_change_by_it(make_pool):
    before = studied(pools_of(make_pool), "taco")

    assert "no run with a repaired scorer" in claim([before], "TACO (DFR): change on HARD problems").reason


def test_the_change_by_two_passes_is_of_the_groups_of_one_generator(make_pool):
    """By two passes 0.5 to 0.75 and 0.5 to 0.25 with 2 and 4 people; 5 are not asked for."""

    def group(people, once, twice):
        shares = {"energy (paper)": once, "all passes": twice}
        estimates = {name: Estimate(value=share, low=None, high=None, n=4) for name, share in shares.items()}
        return DifficultyRow(difficulty=f"{people} people", num_problems=4, pass_at_1=estimates, mean_violation={})

    pools = [make_pool((1, {"members": (0.0,), "generator": "qwen"}))]
    single = studied(pools, "knights_knaves", name="qwen")
    rows = (group(2, 0.5, 0.75), group(4, 0.5, 0.25), group(5, 0.0, 1.0))
    single = replace(single, evaluation=replace(single.evaluation, difficulties=rows))

    shown = claim([single], "K&K: change by two passes of one generator, 2 to 4 people")

    assert (shown.measured, shown.reason) == ("-25.0 to +25.0 pp", "qwen")
