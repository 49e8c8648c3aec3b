import pytest

from raydebm.evaluation.paper.paper_cells import paper
from raydebm.evaluation.paper.paper_tables import MEASURES


def test_every_table_is_rectangular_and_has_a_measure():
    tables = paper().tables

    assert set(tables) == set(MEASURES)
    assert not set(tables) & set(paper().settings)
    for table in tables.values():
        assert len({name for name, _ in table.rows}) == len(table.rows)
        for _, cells in table.rows:
            assert len(cells) == len(table.columns)


@pytest.mark.parametrize(
    ("label", "row", "column", "printed"),
    [
        ("tab:main_results", "Distributional EBM", "TravelPlanner", "0.046"),
        ("tab:main_results", "Oracle", "MuSR", "86.1%"),
        ("tab:energy_sep", "sigma-AUROC", "K&K", "0.87"),
        ("tab:full_transfer", "MuSR (DB)", "GSM8K", "96.1%"),
        ("tab:twopass", "TravelPlanner, single", "Delta", "+6.0 pp"),
        ("tab:tp_perdim", "Preferences", "Oracle", "0.180"),
    ],
)
def test_values_as_printed(label, row, column, printed):
    assert paper().tables[label].cell(row, column) == printed


def test_a_dash_and_an_unknown_cell_are_nothing():
    table = paper().tables["tab:main_results"]

    assert table.cell("EORM (55M)", "MuSR") is None
    assert table.cell("no such row", "MuSR") is None


def test_every_benchmark_of_the_tables_is_a_task():
    assert set(paper().benchmarks) <= set(paper().tasks)
    assert paper().tasks["K&K"] == "knights_knaves"
