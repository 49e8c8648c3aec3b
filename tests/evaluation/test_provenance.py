"""The command that a report names."""

import sys

import pytest

from raydebm.evaluation.stats.json_results import command_line, versions


@pytest.mark.parametrize("program", ["/somewhere/bin/raydebm", "/code/raydebm/__main__.py"])
def test_the_installed_command_and_the_module_are_one_command(monkeypatch, program):
    monkeypatch.setattr(sys, "argv", [program, "seeds", "--config", "a file.yaml"])

    assert command_line() == "raydebm seeds --config 'a file.yaml'"


def test_another_program_is_named_as_it_was_called(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["jobs/train_all.py", "seed=1"])

    assert command_line() == "jobs/train_all.py seed=1"


def test_versions_name_the_package_itself():
    assert "raydebm" in versions()
