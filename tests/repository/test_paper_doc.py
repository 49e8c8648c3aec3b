"""docs/paper.md names places, tests and mutations that exist, and says why where something differs."""

import ast
from collections import Counter
from functools import cache

import pytest
import yaml
from paper_page import NUM_CELLS, REPOSITORY, cells_of_rows, paper_rows, quoted

from raydebm.evaluation.paper.paper_cells import paper

STATUSES = {"same", "reading", "differs", "ready", "missing"}
ROWS = paper_rows()
MUTATIONS = yaml.safe_load((REPOSITORY / "tests" / "mutations" / "mutations.yaml").read_text(encoding="utf-8"))


@cache
def names_in(path):
    """Functions, classes and constants that a module defines at its top."""
    tree = ast.parse((REPOSITORY / path).read_text(encoding="utf-8"))
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def is_there(place, separator):
    path, _, name = place.partition(separator)
    return (REPOSITORY / path).is_file() and (not name or name in names_in(path))


def test_the_page_has_rows_of_equally_many_cells():
    assert len(ROWS) >= 50
    assert [row[0] for row in cells_of_rows() if len(row) != NUM_CELLS] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.paper)
def test_every_place_and_test_exists(row):
    if row.status == "missing":
        return
    (place,) = quoted(row.code)
    assert place.startswith("raydebm/")
    assert is_there(place, ":")
    assert row.tests
    assert [test for test in row.tests if not test.startswith("tests/") or not is_there(test, "::")] == []


def test_every_row_has_a_mutation_and_every_mutation_a_row():
    assert [row.paper for row in ROWS if not row.mutations and row.status != "missing"] == []
    assert {name for row in ROWS for name in row.mutations} == {each["id"] for each in MUTATIONS}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation["id"])
def test_a_mutations_text_occurs_once(mutation):
    """Where the code has changed, mend its entry in tests/mutations/mutations.yaml, and run the script for it."""
    text = (REPOSITORY / mutation["file"]).read_text(encoding="utf-8")

    assert (text.count(mutation["old"]), mutation["new"] == mutation["old"]) == (1, False)


def test_ids_of_mutations_are_unique():
    assert [name for name, count in Counter(each["id"] for each in MUTATIONS).items() if count > 1] == []


def test_every_table_of_the_paper_has_one_row():
    labels = [label for row in ROWS for label in quoted(row.paper) if label.startswith("tab:") or label == "text"]

    assert sorted(labels) == sorted([*paper().tables, *paper().settings, "tab:transfer"])


def test_every_figure_of_the_paper_has_one_row():
    labels = [label for row in cells_of_rows() for cell in row for label in quoted(cell) if label.startswith("fig:")]

    assert sorted(labels) == sorted(figure.label for figure in paper().figures)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.paper)
def test_what_is_not_the_same_says_why(row):
    assert row.status in STATUSES
    assert row.status in ("same", "ready") or len(row.reason) > 10
