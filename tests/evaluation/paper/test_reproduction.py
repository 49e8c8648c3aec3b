"""The report of several pools: the paper's tables beside paper, files, figures."""

import dataclasses
import json
import math
import random
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import hand_made
import pytest
from hand_made import cell, random_pools, table_of

from raydebm.errors import PoolError
from raydebm.evaluation.paper import reproduction as reproduction_report
from raydebm.evaluation.paper.reproduction import Reproduction, document, reproduction, write_reproduction
from raydebm.evaluation.report import figures
from raydebm.evaluation.report.document import Chapter, Table, svg_of
from raydebm.evaluation.report.study_tables import transfer_table
from raydebm.evaluation.studies.scorers import ScoredRun, transfer
from raydebm.evaluation.studies.study import StudyResults
from raydebm.run.directory import RunDir

ADAPTERS = ("a0", "a1", "a2")


def studied(*, task="knights_knaves", name="puzzles", continuous=False, seed=0, repaired=False):
    return hand_made.studied(
        random_pools(continuous=continuous, seed=seed),
        random_pools(prefix="v", seed=1),
        task=task,
        name=name,
        adapters=ADAPTERS,
        command="raydebm reproduce --config x.yaml",
        subject={
            "num_train": 30,
            "backbone": "encoder-mini",
            "repaired": repaired,
            "notes": ("Made <up> for a test.",),
        },
    )


@pytest.fixture(scope="module")
def puzzles():
    return studied()


@pytest.fixture(scope="module")
def plans():
    return studied(task="travelplanner", name="plans", continuous=True)


@pytest.fixture(scope="module")
def matrix():
    home = random_pools(seed=2)
    other = random_pools(prefix="o", seed=3)
    return transfer(
        [
            ScoredRun(source="K&K (MB)", target="K&K", pools=table_of(home), in_domain=True),
            ScoredRun(source="a scorer with a long name", target="K&K", pools=table_of(home)),
            ScoredRun(source="K&K (MB)", target="GSM8K", pools=table_of(other)),
        ],
        title="Transfer",
    )


@pytest.fixture(scope="module")
def reproduced(puzzles, plans, matrix):
    spread = Table(title="Spread", caption="How to read it.", headers=("a", "b"), rows=(("1", "2"),))
    section = Chapter(title="Confounding", paragraphs=("Who is picked.",), tables=(spread,))
    return reproduction([puzzles, plans], transfers=[matrix], sections=[section], command="raydebm reproduce")


@pytest.fixture(scope="module")
def report(reproduced, tmp_path_factory):
    """(run directory, address, document) of the written report. Its figures are drawn once: that takes the time."""
    run, drawn = RunDir(str(tmp_path_factory.mktemp("report"))), []

    def draw(*arguments):
        drawn.append(document(*arguments))
        return drawn[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduction_report, "document", draw)
        address = write_reproduction(reproduced, run)
    return run, address, drawn[0]


@pytest.fixture(scope="module")
def parts(report):
    return report[2].chapters


def test_a_measured_cell_stands_beside_the_published_one(reproduced, puzzles):
    paper = cell(reproduced, "tab:main_results", "Distributional EBM", "K&K")

    assert (paper.published, paper.status) == ("99.9%", "measured")
    assert paper.estimate == puzzles.evaluation.row("energy (paper)").pass_at_1
    assert f"n={paper.estimate.n}" in paper.measured


def test_the_main_metric_of_a_continuous_task_is_its_violation(reproduced, plans):
    paper = cell(reproduced, "tab:main_results", "Distributional EBM", "TravelPlanner")

    assert paper.estimate == plans.evaluation.row("energy (paper)").mean_violation


@pytest.mark.parametrize(
    ("label", "row", "column", "status", "why"),
    [
        ("tab:main_results", "Claude Opus 4.6", "K&K", "needs a key or GPU", "API key"),
        ("tab:main_results", "EORM (55M)", "K&K", "not applicable", "EORM"),
        ("tab:full_k_sweep", "K=5, ModernBERT", "K&K", "not measurable", "3 adapters"),
        ("tab:twopass", "K&K, multi", "Two-pass", "not measurable", "no second pass|no answers to feedback"),
        ("tab:permodel", "Gemma-4-26B-IT", "K&K", "not measurable", "not in the pool"),
    ],
)
def test_what_is_not_measured_says_why(reproduced, label, row, column, status, why):
    absent = cell(reproduced, label, row, column)

    assert (absent.status, absent.measured) == (status, None)
    assert any(part in absent.reason for part in why.split("|"))


@pytest.mark.parametrize(
    ("label", "row", "column"),
    [
        ("tab:main_results", "LLM-as-Judge", "K&K"),
        ("tab:energy_sep", "ECE", "K&K"),
        ("tab:tp_perdim", "Budget", "EBM+E_constraint"),
        ("tab:full_transfer", "Self-consistency", "TP"),
    ],
)
def test_what_the_pools_hold_is_measured(reproduced, label, row, column):
    assert cell(reproduced, label, row, column).status == "measured"


@pytest.fixture(scope="module")
def before():
    return studied(task="taco", name="programs")


@pytest.fixture(scope="module")
def after():
    return studied(task="taco", name="programs, repaired", seed=5, repaired=True)


def test_a_scorer_before_and_after_its_repair_stand_side_by_side(before, after):
    reproduced = reproduction([before, after])

    for name, study_of in (("TACO (pre-DFR)", before), ("TACO (post-DFR)", after)):
        assert cell(reproduced, "tab:confounding_screen", name, "Energy spread").estimate == study_of.energy_spread
    assert before.energy_spread != after.energy_spread


@pytest.mark.parametrize(("row", "share"), [("N=4", "50.0"), ("N=8", "100.0")])
def test_a_row_of_the_pool_sizes_has_the_figure_of_its_size(make_pool, row, share):
    """The right one of eight has the lowest energy, and is among four of them half of the time."""
    wrong = [(0, {"members": (1.0,)})] * 7
    pools = [make_pool((1, {"members": (0.0,)}), *wrong, problem_id=f"p{index}") for index in range(2)]

    study = hand_made.studied(pools, task="gsm8k", name="eight")

    assert cell(reproduction([study]), "tab:full_pool", row, "GSM8K EBM").measured.startswith(share)


def test_the_pick_distribution_is_over_all_problems(before):
    row = replace(before.generators[0], name="llama-3.1-8b")

    reproduced = reproduction([replace(before, generators=(row,))])

    assert cell(reproduced, "tab:confounding_screen", "TACO (pre-DFR)", "LLaMA-3.1-8B").estimate == row.picked


def test_the_papers_sweeps_on_taco_are_of_the_scorer_before_the_repair_and_its_results_of_the_one_after(before, after):
    reproduced = reproduction([before, after])

    swept = cell(reproduced, "tab:full_k_sweep", "K=3, ModernBERT", "TACO").estimate
    assert swept == before.ensemble_sizes[2].pass_at_1
    main = cell(reproduced, "tab:main_results", "Distributional EBM", "TACO").estimate
    assert main == after.evaluation.row("energy (paper)").pass_at_1


def test_a_repaired_scorer_never_fills_a_row_before_the_repair(after):
    absent = cell(reproduction([after]), "tab:confounding_screen", "TACO (pre-DFR)", "Energy spread")

    assert (absent.measured, absent.reason) == (None, "only a repaired scorer was given")


def test_the_note_says_when_a_scorer_is_repaired_other_than_the_papers(before):
    [table] = [table for table in reproduction([before]).tables if table.label == "tab:main_results"]

    assert "TACO: programs, scorer on encoder-mini, not repaired (the paper's is" in table.note


def test_tables_of_data_are_of_the_training_pool(puzzles):
    train = random_pools(prefix="t", num_problems=12, seed=7)
    own = hand_made.studied(random_pools(), task="knights_knaves", train=train)
    reproduced = reproduction([own])

    assert cell(reproduced, "tab:dataset_overview", "K&K", "Train").measured == "12"
    assert cell(reproduced, "tab:dataset_overview", "K&K", "Candidate accuracy").estimate == own.training.accuracy
    by_generator = own.training.by_generator["qwen-2.5-7b"]
    assert cell(reproduced, "tab:permodel", "Qwen-2.5-7B", "K&K").estimate == by_generator
    assert cell(reproduction([puzzles]), "tab:permodel", "Qwen-2.5-7B", "K&K").reason == "test pool"


def test_with_violation_scores_a_generator_is_measured_by_its_share_of_the_best_quarter():
    pools = random_pools()
    own = hand_made.studied(pools, task="knights_knaves", train=pools)
    share = own.training.accuracy
    own = replace(own, training=replace(own.training, best_quarter={"qwen-2.5-7b": share}))

    measured = cell(reproduction([own]), "tab:permodel", "Qwen-2.5-7B", "K&K")

    assert measured.estimate == share
    assert "share among the best quarter" in measured.reason


def test_single_model_columns_are_of_a_run_on_one_generator(make_pool, puzzles):
    pools = [
        make_pool(
            (int(index < 3), {"members": (0.0,), "generator": "qwen"}),
            (0, {"members": (1.0,), "generator": "qwen"}),
            problem_id=f"p{index}",
            difficulty=f"{2 + index // 4} people",
        )
        for index in range(8)
    ]
    single = hand_made.studied(pools, task="knights_knaves", name="one generator")

    measured = cell(reproduction([puzzles, single]), "tab:kk_difficulty", "2 people", "Single-model EBM")
    absent = cell(reproduction([puzzles]), "tab:kk_difficulty", "2 people", "Single-model EBM")

    assert measured.estimate.value == 0.75
    assert absent.reason == "no run on the candidates of one generator was given"


def test_a_task_with_choices_has_their_number_and_the_chance_of_guessing(make_pool):
    def asked(name, subset, count):
        pool = make_pool((1, {}), (0, {}), problem_id=name, difficulty=subset)
        return replace(pool, problem=replace(pool.problem, data={"choices": ["x"] * count}))

    subsets = (
        ("a", "murder mysteries", 2),
        ("b", "team allocation", 3),
        ("c", "team allocation", 2),
        ("d", "object placements", 0),
    )
    stories = hand_made.studied([asked(*each) for each in subsets], task="musr")
    reproduced = reproduction([stories])

    assert cell(reproduced, "tab:musr_subsets", "Murder mysteries", "n choices").measured == "2"
    assert cell(reproduced, "tab:musr_subsets", "Murder mysteries", "Random baseline").measured == "50.0"
    assert cell(reproduced, "tab:musr_subsets", "Team allocation", "n choices").measured == "2, 3"
    assert cell(reproduced, "tab:musr_subsets", "Team allocation", "Random baseline").measured == "41.7"
    assert "not all problems" in cell(reproduced, "tab:musr_subsets", "Object placements", "Random baseline").reason


@pytest.mark.parametrize("other", ["claude-3-opus-20240229", "qwen2.5-7b"])
def test_another_model_of_a_family_does_not_fill_the_papers_row(make_pool, other):
    pools = [
        make_pool(
            (0, {"generator": "small", "members": (0.0,)}),
            (1, {"generator": other, "greedy": True}),
            problem_id=f"p{index}",
        )
        for index in range(4)
    ]
    results = hand_made.studied(pools, task="knights_knaves", name="puzzles")
    reproduced = reproduction([results])

    rows = ("Claude Opus 4.6", "Claude Sonnet 4.6", "Qwen-72B-Instruct")
    assert {cell(reproduced, "tab:main_results", row, "K&K").status for row in rows} == {"needs a key or GPU"}


def test_studies_and_reports_survive_json(reproduced, puzzles):
    assert StudyResults.from_json(json.loads(json.dumps(puzzles.to_json(), allow_nan=False))) == puzzles
    assert Reproduction.from_json(json.loads(json.dumps(reproduced.to_json(), allow_nan=False))) == reproduced
    with pytest.raises(PoolError, match="run it again"):
        StudyResults.from_json({})
    with pytest.raises(PoolError, match="run it again"):
        Reproduction.from_json({})


def test_nothing_or_one_name_twice_is_an_error(puzzles):
    with pytest.raises(PoolError, match="at least one scored pool"):
        reproduction([])
    with pytest.raises(PoolError, match="two studies are named 'puzzles'"):
        reproduction([puzzles, puzzles])


def test_the_page_stands_alone_and_its_contents_lead_somewhere(report, parts):
    text = report[2].html()
    anchors, links = (set(re.findall(pattern, text)) for pattern in (r'<section id="([^"]+)"', r'<a href="#([^"]+)"'))

    assert not re.search(r"<(?:script|link|iframe)|(?:src|href)=.(?!#|data:)", text)
    assert links == anchors == {"paper", "figures", "across", "pool-1", "pool-2", "section-1"}
    assert "Made &lt;up&gt; for a test." in text
    assert text.count("<svg") == sum(len(part.figures) for part in parts)


def test_markdown_and_page_hold_the_same_tables(report, reproduced, parts):
    text = report[2].markdown()

    for part in parts:
        assert f"## {part.title}" in text
        for table in part.tables:
            assert f"### {table.title}" in text
            assert all(len(line) == len(table.headers) for line in table.rows)
    for table in reproduced.tables:
        assert f"({table.label})" in text


def test_files_are_written_and_markdown_points_to_its_figures(report):
    run, address, _ = report

    assert address == run.uri("reproduction", "report.html")
    assert run.exists("reproduction", "results.json")
    text = run.read_bytes("reproduction", "report.md").decode()
    addresses = re.findall(r"!\[[^]]*\]\(([^)]*)\)", text)
    assert len(addresses) == 15
    for address in addresses:
        assert ET.fromstring(run.read_bytes("reproduction", *address.split("/"))).tag.endswith("svg")


def test_pools_without_energies_or_answers_are_studied_by_what_remains(make_pool):
    plain = hand_made.studied([make_pool((1, {}), (0, {}))], task="gsm8k")

    reproduced = reproduction([plain])

    assert (plain.ensemble_sizes, plain.ridges, plain.decomposition) == ((), (), None)
    assert cell(reproduced, "tab:main_results", "Random", "GSM8K").status == "measured"
    assert cell(reproduced, "tab:energy_sep", "ECE", "GSM8K").status == "not measurable"
    assert "<svg" in document(reproduced).html()


def test_the_in_domain_cell_is_marked(matrix):
    rows = {row[0]: row for row in transfer_table(matrix).rows}

    assert "*" in rows["K&K (MB)"][1]
    assert rows["a scorer with a long name"][3:] == ("-", "-")
    assert rows["random"][3] != "-"


def test_a_transferred_cell_of_the_paper_is_by_mu_alone_with_e_beside_it(make_pool):
    pools = [
        make_pool((0, {"members": (0.0,), "penalty": 1.0}), (1, {"members": (0.5,)}), problem_id=f"p{index}")
        for index in range(30)
    ]
    run = ScoredRun(source="GSM8K (MB)", target="K&K", pools=table_of(pools))
    reproduced = reproduction([], transfers=[transfer([run], title="t")])

    measured = cell(reproduced, "tab:full_transfer", "GSM8K (MB)", "K&K")

    assert measured.estimate.value == 0.0
    assert measured.measured == "0.0 [0.0, 11.6], n=30; by E 100.0 [88.4, 100.0]"
    assert measured.reason == "by mu alone"


@pytest.mark.parametrize(
    "draw",
    [
        lambda study, matrix: figures.ensemble_size_figure(study.ensemble_sizes),
        lambda study, matrix: figures.pool_size_figure(study.pool_sizes),
        lambda study, matrix: figures.decomposition_figure(study.decomposition),
        lambda study, matrix: figures.ridge_figure(study.ridges),
        lambda study, matrix: figures.reliability_figure(
            study.evaluation.trust.reliabilities, study.evaluation.trust.sigma_bins
        ),
        lambda study, matrix: figures.transfer_figure(matrix),
        lambda study, matrix: figures.selector_figure(study.evaluation.rows),
        lambda study, matrix: figures.pass_at_n_figure(study.evaluation.pass_at_n),
        lambda study, matrix: figures.triage_figure(study.evaluation.picks, theta_sigma=0.1, theta_abstain=9.0),
    ],
    ids=["ensemble", "pools", "terms", "ridges", "reliability", "transfer", "selectors", "pass@n", "triage"],
)
def test_figures_are_drawn_within_the_page(plans, matrix, draw):
    figure = draw(plans, matrix)

    assert ET.fromstring(svg_of(figure)).tag.endswith("svg")
    figure.draw_without_rendering()
    page = figure.bbox.padded(1.0)
    for text in texts_of(figure):
        (left, bottom), (right, top) = text.get_window_extent().get_points()
        assert page.x0 <= left <= right <= page.x1, text
        assert page.y0 <= bottom <= top <= page.y1, text


def texts_of(figure):
    """Labels, titles and legends that are drawn."""
    texts = list(figure.legends)
    for axes in figure.axes:
        texts += [text for text in (axes.xaxis.label, axes.yaxis.label, axes.title) if text.get_text()]
        texts += [axes.get_legend()] if axes.get_legend() else []
    return texts


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.filterwarnings("error")
def test_any_pools_can_be_studied(make_pool, seed):
    """Tiny random pools with everything missing now and then: no crash, no warning, no NaN in the JSON."""
    rng = random.Random(seed)
    num_adapters, continuous = rng.choice([0, 1, 2, 3]), rng.random() < 0.3

    def members():
        return tuple(rng.choice([0.0, 1.0, rng.gauss(0, 1)]) for _ in range(num_adapters))

    def pools(prefix):
        drawn_pools = []
        for index in range(rng.randint(2, 10)):
            rows = [
                (
                    rng.choice([0, 1, None]),
                    {
                        "members": None if num_adapters == 0 or rng.random() < 0.2 else members(),
                        "penalty": rng.choice([0.0, 0.0, 1.0, math.inf]),
                        "key": rng.choice("xyz"),
                        "generator": rng.choice("gh"),
                        "text": rng.choice(["a", "bbb", None]),
                        "greedy": rng.random() < 0.1,
                    },
                )
                for _ in range(rng.randint(1, 6))
            ]
            drawn_pools.append(
                make_pool(
                    *rows,
                    problem_id=f"{prefix}{index}-",
                    difficulty=rng.choice(["", "EASY", "2 people"]),
                    scores={"judge": [rng.choice([None, 1.0, 2.0]) for _ in rows]},
                    violations=[rng.random() for _ in rows] if continuous else None,
                )
            )
        return drawn_pools

    study = hand_made.studied(pools("t"), pools("v"), task="knights_knaves", name="n")

    json.dumps(reproduction([study]).to_json(), allow_nan=False)
    assert StudyResults.from_json(json.loads(json.dumps(study.to_json(), allow_nan=False))) == study


def test_another_backbone_of_the_same_task_fills_its_own_rows(puzzles):
    other = dataclasses.replace(studied(name="puzzles, DeBERTa"), backbone="microsoft/deberta-v3-base")

    reproduced = reproduction([puzzles, other])

    assert cell(reproduced, "tab:full_k_sweep", "K=3, DeBERTa", "K&K").estimate == other.ensemble_sizes[2].pass_at_1
    assert (
        cell(reproduced, "tab:full_k_sweep", "K=3, ModernBERT", "K&K").estimate == puzzles.ensemble_sizes[2].pass_at_1
    )
