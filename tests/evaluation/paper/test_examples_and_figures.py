"""The paper's examples, and where a report has its figures."""

import hand_made
import pytest
from hand_made import table_of

from raydebm.evaluation.paper.paper_cells import Context, paper
from raydebm.evaluation.paper.reproduction import document, figure_table, reproduction
from raydebm.evaluation.report.evaluation_report import figures_of
from raydebm.evaluation.report.figures import study_figures
from raydebm.evaluation.studies.scorers import ScoredRun, transfer


def plans(make_pool):
    """Two pools of a task with violation scores; E selects the first plan of each."""
    return [
        make_pool(
            (0, {"members": (0.0, 1.0), "text": "a plan", "generator": "g"}),
            (1, {"members": (2.0, 3.0), "penalty": 1.0}),
            problem_id=f"p{index}",
            violations=[0.25, 0.0],
        )
        for index in range(2)
    ]


@pytest.fixture(scope="module")
def trips(make_pool):
    return hand_made.studied(plans(make_pool), task="travelplanner", name="trips")


def row_of(table, label):
    row = next(row for row in table.rows if row[0].endswith(f"({label})"))
    return dict(zip(table.headers, row, strict=True))


def placed(study, drawn=None, transfers=()):
    shown = (*figures_of(study.evaluation), *study_figures(study))
    titles = [figure.title for figure in shown] if drawn is None else drawn
    return figure_table(Context([study], transfers), {study.name: titles})


def test_an_example_has_its_problem_candidate_and_verdict(trips):
    [table] = [table for table in reproduction([trips]).tables if table.label == "tab:examples"]

    cells = [cell.measured for cell in dict(table.rows)["TravelPlanner"]]

    assert cells == ["?", "g: a plan", "incorrect, violation score 0.250, E = 0.50"]


def test_an_example_of_another_task_says_why_there_is_none(trips):
    [table] = [table for table in reproduction([trips]).tables if table.label == "tab:examples"]

    assert {cell.reason for cell in dict(table.rows)["MuSR"]} == {"no scored pool of MuSR was given"}


def test_a_figure_names_the_chapter_that_has_it(trips):
    row = row_of(placed(trips), "fig:triage_surface")

    assert (row["title here"], row["TravelPlanner"]) == ("Triage surface", "trips")


def test_a_figure_of_a_pool_that_was_not_given_says_so(trips):
    assert row_of(placed(trips), "fig:pass_at_n")["MuSR"] == "no scored pool of MuSR was given"


def test_a_figure_that_was_not_drawn_says_why(trips):
    row = row_of(placed(trips, drawn=()), "fig:decomposition_scatter")

    assert row["TravelPlanner"] == "the two terms do not both choose here"


def test_a_task_that_the_papers_figure_does_not_show_has_a_dash(trips):
    assert row_of(placed(trips), "fig:calibration")["TravelPlanner"] == "-"


def test_the_heat_map_stands_across_pools(trips, make_pool):
    run = ScoredRun(source="GSM8K (MB)", target="TP", pools=table_of(plans(make_pool)))
    matrix = transfer([run], title="Transfer")

    assert row_of(placed(trips, transfers=[matrix]), "fig:transfer_heatmap")["TravelPlanner"] == "Across pools"
    assert "reproduce --transfer" in row_of(placed(trips), "fig:transfer_heatmap")["TravelPlanner"]


def test_every_figure_of_the_paper_has_a_row_in_a_report(trips):
    [table] = document(reproduction([trips])).chapters[1].tables

    assert [row[0].split("(")[-1] for row in table.rows] == [f"{figure.label})" for figure in paper().figures]
    assert row_of(table, "fig:calibration")["TravelPlanner"] == "-"


@pytest.fixture(scope="module")
def drawn_titles(make_pool):
    """Of eight problems, four candidates each, with a constraint, two generators and both outcomes."""
    pools = [
        make_pool(
            *[
                (
                    int((place + index) % 3 == 0),
                    {
                        "members": (place * 0.5 + index % 2, place * 0.25),
                        "penalty": place % 2,
                        "generator": "gh"[place % 2],
                        "key": str(place),
                    },
                )
                for place in range(4)
            ],
            problem_id=f"p{index}",
        )
        for index in range(8)
    ]
    study = hand_made.studied(pools, pools, task="gsm8k", name="sums")
    matrix = transfer([ScoredRun(source="GSM8K (MB)", target="GSM8K", pools=table_of(pools))], title="Transfer")
    return {
        figure.title for part in document(reproduction([study], transfers=[matrix])).chapters for figure in part.figures
    }


@pytest.mark.parametrize("figure", [figure for figure in paper().figures if figure.tasks], ids=lambda each: each.label)
def test_the_title_of_a_figure_is_one_that_reports_draw(figure, drawn_titles):
    assert figure.here in drawn_titles
