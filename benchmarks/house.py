"""Sizes of the repository and their budgets, the table in docs/architecture.md.

    python benchmarks/house.py

Lines are non-blank lines of files that git tracks. Recipe keys and service arguments are the fields of the settings
models; each model counts once.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from raydebm.cli.commands import VERBS, command_of
from raydebm.config import Recipe
from raydebm.service.settings import AppArgs

REPOSITORY = Path(__file__).resolve().parents[1]

BUDGETS: Mapping[str, int] = {
    "source lines": 45_200,
    "modules": 268,
    "test lines": 35_410,
    "benchmark lines": 2_500,
    "client lines": 410,
    "document lines outside docs/log": 5_800,
    "tracked bytes": 15_250_000,
    "recipe keys": 144,
    "service arguments": 28,
    "commands": 16,
}
"""Budgets only fall, unless a line in CHANGELOG.md names the user who needs a larger one."""


def tracked(*patterns: str) -> list[Path]:
    """Files in git's index that are on disk, by path patterns of git."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *patterns], capture_output=True, check=True, cwd=REPOSITORY
    ).stdout
    return [file for name in listed.decode().split("\0") if name and (file := REPOSITORY / name).is_file()]


def non_blank_lines(files: Iterable[Path]) -> int:
    """Count the lines of UTF-8 files that are not blank."""
    return sum(bool(line.strip()) for file in files for line in file.read_text(encoding="utf-8").splitlines())


def measured() -> dict[str, int]:
    """Measure everything that has a budget."""
    source = tracked("raydebm/*.py")
    log = REPOSITORY / "docs" / "log"
    return {
        "source lines": non_blank_lines(source),
        "modules": sum(file.name != "__init__.py" for file in source),
        "test lines": non_blank_lines(tracked("tests/*.py")),
        "benchmark lines": non_blank_lines(tracked("benchmarks/*.py")),
        "client lines": non_blank_lines(tracked("client/raydebm_client/*.py")),
        "document lines outside docs/log": non_blank_lines(f for f in tracked("*.md") if log not in f.parents),
        "tracked bytes": sum(file.stat().st_size for file in tracked()),
        "recipe keys": _num_keys(Recipe),
        "service arguments": _num_keys(AppArgs),
        "commands": sum(len(getattr(command_of(name), "commands", [name])) for name in VERBS),
    }


def _num_keys(model: type[BaseModel]) -> int:
    schema = model.model_json_schema(by_alias=True)
    models = [schema, *schema.get("$defs", {}).values()]
    return sum(len(_properties(one)) for one in models)


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    return properties


def table() -> Iterator[str]:
    """Lines of a Markdown table of the sizes and their budgets."""
    yield from ("| | now | budget |", "|---|---:|---:|")
    for name, value in measured().items():
        yield f"| {name} | {value:,} | {BUDGETS[name]:,} |"


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in table()))
