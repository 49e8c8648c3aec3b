"""docs/security.md names places and tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs" / "security.md").read_text(encoding="utf-8")
DEFENCES = PAGE.partition("## What is defended")[2].partition("\n## ")[0]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in DEFENCES.splitlines()
    if line.startswith("| ") and not line.startswith("| against |")
]


@cache
def names_in(path):
    """Functions and classes that a module defines at its top."""
    tree = ast.parse((REPOSITORY / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}


def test_the_page_has_rows_of_three_cells():
    assert len(ROWS) >= 25
    assert [row for row in ROWS if len(row) != 3] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_place_and_test_exists(row):
    _, place, test = row
    path, _, name = re.fullmatch(r"`((?:raydebm|client)/[\w/]+\.py)(:(\w+))?`", place).groups()
    assert name is None or name in names_in(path)
    assert (REPOSITORY / path).is_file()
    path, _, name = re.fullmatch(r"`(tests/[\w/]+\.py)(::(test_\w+))?`", test).groups()
    assert name is None or name in names_in(path)
    assert (REPOSITORY / path).is_file()
