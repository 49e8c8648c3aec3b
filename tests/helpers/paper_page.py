"""The rows of docs/paper.md."""

import re
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]
NUM_CELLS = 6


class PaperRow(NamedTuple):
    paper: str
    code: str
    tests: tuple[str, ...]
    """Files, or file::function."""
    mutations: tuple[str, ...]
    """Ids in tests/mutations/mutations.yaml."""
    status: str
    reason: str


def cells_of_rows() -> list[list[str]]:
    lines = (REPOSITORY / "docs" / "paper.md").read_text(encoding="utf-8").splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in lines
        if line.startswith("| ") and not line.startswith("| paper |")
    ]


def paper_rows() -> list[PaperRow]:
    return [
        PaperRow(paper, code, tuple(quoted(tests)), tuple(quoted(mutations)), status, reason)
        for paper, code, tests, mutations, status, reason in cells_of_rows()
    ]


def quoted(cell: str) -> list[str]:
    """The parts of a cell such as "`a`, `b`"."""
    return re.findall(r"`([^`]+)`", cell)
