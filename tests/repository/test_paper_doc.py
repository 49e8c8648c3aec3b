"""docs/paper.md names places and tests that exist, and says why where something differs."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from raydebm.evaluation.paper.published import paper

REPOSITORY = Path(__file__).resolve().parents[2]
STATUSES = {"same", "reading", "differs", "ready", "missing"}
LINES = (REPOSITORY / "docs" / "paper.md").read_text(encoding="utf-8").splitlines()
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in LINES
    if line.startswith("| ") and not line.startswith("| paper |")
]


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


def test_the_page_has_rows_of_five_cells():
    assert len(ROWS) >= 50
    assert [row[0] for row in ROWS if len(row) != 5] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_place_and_test_exists(row):
    _, code, test, status, _ = row
    if code == test == "-":
        assert status == "missing"
        return
    path, _, name = re.fullmatch(r"`(raydebm/[\w/]+\.py)(:(\w+))?`", code).groups()
    assert name is None or name in names_in(path)
    assert (REPOSITORY / path).is_file()
    path, _, name = re.fullmatch(r"`(tests/[\w/]+\.py)(::(test_\w+))?`", test).groups()
    assert name is None or name in names_in(path)
    assert (REPOSITORY / path).is_file()


def test_every_table_of_the_paper_has_one_row():
    labels = re.findall(r"`(tab:\w+|text)`", " ".join(row[0] for row in ROWS))

    assert sorted(labels) == sorted([*paper().tables, *paper().settings, "tab:transfer"])


def test_every_figure_of_the_paper_has_one_row():
    labels = re.findall(r"`(fig:\w+)`", " ".join(cell for row in ROWS for cell in row))

    assert sorted(labels) == sorted(figure.label for figure in paper().figures)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_what_is_not_the_same_says_why(row):
    *_, status, reason = row
    assert status in STATUSES
    assert status in ("same", "ready") or len(reason) > 10
