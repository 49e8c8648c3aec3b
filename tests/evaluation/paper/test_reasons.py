"""What a cell of the paper's tables says of itself: why it is empty, which model or constraint its figure is of."""

import hand_made
import pytest
from hand_made import cell, table_of

from raydebm.evaluation.paper.paper_cells import paper
from raydebm.evaluation.paper.reproduction import reproduction
from raydebm.evaluation.report.study_tables import transfer_table
from raydebm.evaluation.studies.scorers import RefusedCell, ScoredRun, transfer


def small_pools(make_pool, *, members=((0.0, 0.5), (1.0, 1.5)), broken=False, num_problems=4, **fields):
    """The second of two candidates is wrong, and has the higher energies where there are any."""
    penalty = {"penalty": 1.0, "broken": [("public tests", 1.0)]} if broken else {}
    return [
        make_pool(
            (1, {"members": members and members[0], "key": "x", "generator": "g", **fields}),
            (0, {"members": members and members[1], "key": "y", "generator": "h", **penalty}),
            problem_id=f"p{index}",
        )
        for index in range(num_problems)
    ]


def studied(pools, task, **subject):
    name = subject.pop("name", task)
    return hand_made.studied(pools, task=task, name=name, subject=subject)


def table(reproduced, label):
    return next(table for table in reproduced.tables if table.label == label)


@pytest.fixture(scope="module")
def puzzles(make_pool):
    return studied(small_pools(make_pool), "knights_knaves")


@pytest.fixture(scope="module")
def questions(make_pool):
    return studied(small_pools(make_pool), "gsm8k")


@pytest.mark.parametrize(
    ("row", "column", "reason"),
    [
        ("Self-consistency", "MuSR", "no scored pool of MuSR was given"),
        ("Random", "MuSR", "no scored pool of MuSR was given"),
        ("MuSR (MB)", "MuSR", "no scored pool of MuSR was given"),
        ("GSM8K (MB)", "MuSR", "no scored pool of MuSR was given"),
        ("MuSR (MB)", "K&K", "no scorer of MuSR was given"),
        (
            "GSM8K (MB)", "K&K",
            "the pool of K&K was not scored by the scorer of GSM8K; `raydebm reproduce --transfer` does so",
        ),
        ("GSM8K (DB)", "K&K", "no scorer with a DeBERTa-v3 backbone was given; its training needs a GPU"),
    ],
)  # fmt: skip
def test_an_empty_cell_of_transfer_says_what_is_missing(puzzles, questions, row, column, reason):
    assert cell(reproduction([puzzles, questions]), "tab:full_transfer", row, column).reason == reason


def test_a_deberta_scorer_that_was_not_tried_elsewhere_needs_no_gpu_but_a_transfer(make_pool, puzzles, questions):
    other = studied(small_pools(make_pool), "gsm8k", name="other", backbone="microsoft/deberta-v3-base")
    reproduced = reproduction([puzzles, questions, other])

    absent = cell(reproduced, "tab:full_transfer", "GSM8K (DB)", "K&K")
    assert (absent.status, absent.measured) == ("not measurable", None)
    assert "raydebm reproduce --transfer" in absent.reason
    own = cell(reproduced, "tab:full_transfer", "GSM8K (DB)", "GSM8K")
    assert (own.estimate, own.reason) == (other.evaluation.row("mu only").pass_at_1, "by mu alone; of other")


def test_the_one_mean_violation_of_the_papers_transfer_table_is_a_mean_violation_here(make_pool):
    pools = [
        make_pool((0, {"members": (0.0,)}), (1, {"members": (1.0,)}), violations=[0.25, 0.0], problem_id=f"p{index}")
        for index in range(30)
    ]
    runs = [ScoredRun(source=source, target="TP", pools=table_of(pools)) for source in ("K&K (MB)", "MuSR (MB)")]
    reproduced = reproduction([], transfers=[transfer(runs, title="t")])

    paper = cell(reproduced, "tab:full_transfer", "K&K (MB)", "TP")
    assert paper.estimate.value == 0.25
    assert paper.reason.startswith("mean violation by mu alone")
    assert cell(reproduced, "tab:full_transfer", "MuSR (MB)", "TP").estimate.value == 0.0


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("Distributional EBM", "no candidate has energies"),
        ("mu only", "no candidate has energies"),
        ("Greedy (T=0)", "the pool has no separate sample at temperature 0"),
    ],
)
def test_a_selector_that_a_pool_does_not_allow_says_what_it_needs(make_pool, row, reason):
    plain = studied(small_pools(make_pool, members=None), "gsm8k")

    assert cell(reproduction([plain]), "tab:main_results", row, "GSM8K").reason == reason


def single_shot(make_pool, *models):
    answers = [(1, {"generator": model, "greedy": True}) for model in models]
    return [
        make_pool((0, {"generator": "small", "members": (0.0,)}), *answers, problem_id=f"p{index}", difficulty=group)
        for index, group in enumerate(("EASY", "HARD"))
    ]


@pytest.mark.parametrize(
    ("model", "row", "remark"),
    [
        ("claude-sonnet-4", "Claude Sonnet 4.6", ", another version"),
        ("claude-sonnet-4.5", "Claude Sonnet 4.6", ", another version"),
        ("claude-sonnet-4-6", "Claude Sonnet 4.6", ""),
        ("anthropic/claude-opus-4.6", "Claude Opus 4.6", ""),
        ("claude-opus-4-1", "Claude Opus 4.6", ", another version"),
        ("qwen2.5-72b-instruct", "Qwen-72B-Instruct", ""),
        ("qwen-2.5-72b", "Qwen-72B-Instruct", ""),
        ("qwen1.5-72b-chat", "Qwen-72B-Instruct", ", another version"),
    ],
)
def test_another_version_of_the_papers_model_is_marked(make_pool, model, row, remark):
    reproduced = reproduction([studied(single_shot(make_pool, model), "taco")])

    measured = cell(reproduced, "tab:main_results", row, "TACO")
    assert (measured.estimate.value, measured.reason) == (1.0, f"here: {model}{remark}; one answer at temperature 0")


def test_another_version_is_marked_by_difficulty_too(make_pool):
    reproduced = reproduction([studied(single_shot(make_pool, "claude-sonnet-4"), "taco")])

    assert "claude-sonnet-4, another version" in cell(reproduced, "tab:taco_difficulty", "EASY", "Sonnet 4.6").reason


def test_the_papers_version_comes_before_another_one(make_pool):
    reproduced = reproduction([studied(single_shot(make_pool, "claude-sonnet-4", "claude-sonnet-4.6"), "taco")])

    assert (
        cell(reproduced, "tab:main_results", "Claude Sonnet 4.6", "TACO").reason
        == "here: claude-sonnet-4.6; one answer at temperature 0"
    )


@pytest.mark.parametrize("label", ["tab:main_results", "tab:full_k_sweep", "tab:full_pool", "tab:taco_difficulty"])
@pytest.mark.parametrize(
    ("broken", "words"),
    [(True, "E_constraint by public tests (the paper applies none"), (False, "E_constraint 0 for every candidate")],
    ids=["public tests", "none"],
)
def test_a_column_of_taco_names_its_constraint(make_pool, label, broken, words):
    programs = studied(small_pools(make_pool, broken=broken), "taco", name="programs")

    note = table(reproduction([programs]), label).note

    assert words in note
    assert "scorer on an unnamed backbone" in note


def test_a_sweep_names_the_scorer_before_its_repair(make_pool):
    pools = small_pools(make_pool)
    given = [studied(pools, "taco", name="as trained"), studied(pools, "taco", name="refitted", repaired=True)]
    reproduced = reproduction(given)

    assert "TACO: as trained, scorer on an unnamed backbone, E_constraint" in table(reproduced, "tab:full_k_sweep").note
    assert "TACO: refitted, scorer on an unnamed backbone, E_constraint" in table(reproduced, "tab:main_results").note


def test_a_transfer_to_problems_of_the_training_is_left_out_and_says_why(make_pool, puzzles, questions):
    refused = RefusedCell(
        source="GSM8K", target="K&K", reason="5 of its 40 test problems are among those of the training"
    )
    home = ScoredRun(
        source="K&K", target="K&K", pools=table_of(small_pools(make_pool, num_problems=40)), in_domain=True
    )
    matrix = transfer([home], title="Transfer", refused=[refused])

    absent = cell(reproduction([puzzles, questions], transfers=[matrix]), "tab:full_transfer", "GSM8K (MB)", "K&K")

    assert (absent.status, absent.reason) == ("not measurable", refused.reason)
    assert matrix.refusal("K&K", "K&K") is None
    assert f"Left out: GSM8K on K&K, {refused.reason}." in transfer_table(matrix).caption


@pytest.mark.parametrize(("num_problems", "status"), [(29, "not measurable"), (30, "measured")])
def test_a_transfer_needs_thirty_problems(make_pool, puzzles, questions, num_problems, status):
    pools = small_pools(make_pool, num_problems=num_problems)
    matrix = transfer([ScoredRun(source="GSM8K", target="K&K", pools=table_of(pools))], title="Transfer")
    reproduced = reproduction([puzzles, questions], transfers=[matrix])

    cells = [cell(reproduced, "tab:full_transfer", row, "K&K") for row in ("GSM8K (MB)", "Random")]

    assert [each.status for each in cells] == [status] * 2
    assert all(("on 29 problems" in each.reason) is (num_problems == 29) for each in cells)


def test_the_gap_of_the_energies_is_the_difference_of_the_means_as_the_paper_has_it(make_pool):
    """Right 0 and 4, wrong 1, 5 and 6: means 2 and 4, so 2. Within the problems 1 and 1.5, so 1.25."""
    pools = [
        make_pool((1, {"members": (0.0,)}), (0, {"members": (1.0,)}), problem_id="p"),
        make_pool((1, {"members": (4.0,)}), (0, {"members": (5.0,)}), (0, {"members": (6.0,)}), problem_id="q"),
    ]

    gap = cell(reproduction([studied(pools, "gsm8k")]), "tab:energy_sep", "Energy gap", "GSM8K")

    assert gap.estimate.value == pytest.approx(2.0)
    assert "within problems with both classes 1.250" in gap.reason


def test_the_papers_cells_are_counted_apart_from_ours(make_pool, puzzles):
    extra = studied(small_pools(make_pool), "knights_knaves", name="more puzzles")
    alone, both = reproduction([puzzles]).counts, reproduction([puzzles, extra]).counts

    assert alone.published == both.published == sum(
        cell is not None for table in paper().tables.values() for row, _ in table.rows
        for cell in (table.cell(row, column) for column in table.columns)
    )  # fmt: skip
    assert alone.measured == both.measured
    assert alone.measured + alone.not_measurable + alone.needs_key_or_gpu == alone.published
    assert both.beyond_the_paper > alone.beyond_the_paper > 0
    assert alone.on_few_problems > 0
    assert f"{alone.measured} of the paper's {alone.published} cells are measured here" in alone.in_words()


def test_a_model_that_sampled_the_pool_is_named_with_its_version_and_its_number_of_answers(make_pool):
    pools = [
        make_pool((1, {"generator": "sonnet"}), (0, {"generator": "sonnet"}), (1, {"generator": "g"}), problem_id=name)
        for name in "pq"
    ]
    reproduced = reproduction([studied(pools, "gsm8k", models={"sonnet": "claude-sonnet-4-20250514"})])

    measured = cell(reproduced, "tab:main_results", "Claude Sonnet 4.6", "GSM8K")

    assert measured.estimate.value == 0.5
    assert measured.reason == "here: claude-sonnet-4-20250514, another version; mean of 2 sampled answers"


def test_a_row_of_an_outside_scorer_names_its_model(make_pool):
    pools = [make_pool((1, {}), (0, {}), scores={"another eorm": [0.0, 1.0], "eorm": [1.0, 0.0]})]
    reproduced = reproduction([studied(pools, "gsm8k", models={"eorm": "EORM of 4.3M parameters"})])

    found = cell(reproduced, "tab:main_results", "EORM (55M)", "GSM8K")
    assert (found.estimate.value, found.reason) == (1.0, "here: EORM of 4.3M parameters")


def test_humaneval_has_a_column_of_its_own_and_apps_stands_in_for_taco(make_pool):
    given = [
        studied(small_pools(make_pool), "taco", name="humaneval", data="problems_humaneval"),
        studied(small_pools(make_pool), "taco", name="apps", data="problems_apps150"),
    ]
    main = table(reproduction(given), "tab:main_results")

    assert main.columns[-1] == "humaneval"
    assert "TACO: apps (problems_apps150 in place of TACO" in main.note
    alone = reproduction(given[:1])
    assert cell(alone, "tab:main_results", "Random", "TACO").reason == "no scored pool of TACO was given"
    own = [*given, studied(small_pools(make_pool), "taco", name="programs")]
    assert table(reproduction(own), "tab:main_results").columns[-2:] == ("humaneval", "apps")


def test_groups_that_the_paper_does_not_have_are_rows_below_its_own(make_pool):
    pools = [
        make_pool((1, {}), (0, {}), problem_id=f"p{index}", difficulty=["EASY", "interview"][index % 2])
        for index in range(4)
    ]
    reproduced = reproduction([studied(pools, "taco")])

    rows = [name for name, _ in table(reproduced, "tab:taco_difficulty").rows]
    assert rows == ["EASY", "MEDIUM", "MEDIUM_HARD", "HARD", "interview"]
    assert cell(reproduced, "tab:taco_difficulty", "interview", "n").measured == "2"


def test_groups_that_the_first_pool_lacks_come_from_another_pool_of_the_task(make_pool):
    def of_size(people, name):
        groups = [f"{people} people", f"{people + 1} people"]
        pools = [
            make_pool(
                (1, {"members": (0.0,), "generator": "g"}), (0, {"members": (1.0,), "generator": "h"}),
                problem_id=f"p{index}", difficulty=groups[index % 2],
            )
            for index in range(4)
        ]  # fmt: skip
        return studied(pools, "knights_knaves", name=name)

    reproduced = reproduction([of_size(2, "small"), of_size(4, "large")])

    cells = [cell(reproduced, "tab:kk_difficulty", f"{people} people", "EBM") for people in (2, 4, 6)]
    assert [(each.measured is not None, each.reason) for each in cells] == [
        (True, ""), (True, "of large"), (False, "the pool has no group '6 people'"),
    ]  # fmt: skip


def test_a_pool_of_several_generators_needs_no_scorer_of_one(questions):
    reproduced = reproduction([questions])

    both = cell(reproduced, "tab:cross_pool", "Multi-train, multi-test", "GSM8K")
    assert both.estimate == questions.evaluation.row("energy (paper)").pass_at_1
    assert "a variant with one" in cell(reproduced, "tab:cross_pool", "Single-train, single-test", "GSM8K").reason
