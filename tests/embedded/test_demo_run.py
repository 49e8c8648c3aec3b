"""The finished run that ships with the package."""

import re

import pytest

from raydebm.cli.starter import RECIPE
from raydebm.config import load_recipe
from raydebm.embedded import DEMO_RUN_FOLDER
from raydebm.errors import ConfigError
from raydebm.run.addresses import is_packaged, run_address
from raydebm.run.directory import RunDir
from raydebm.service.settings import AppArgs, load_bundle


def files():
    return {file: file.stat().st_mtime_ns for file in DEMO_RUN_FOLDER.rglob("*") if file.is_file()}


def test_it_is_small():
    assert sum(file.stat().st_size for file in files()) < 4_000_000


def test_it_was_made_by_the_demos_recipe():
    assert RunDir(str(DEMO_RUN_FOLDER)).recipe() == load_recipe(RECIPE)


def test_the_service_reads_it_by_name():
    bundle = load_bundle(AppArgs(run_dir="demo"))

    assert bundle.tasks == ("knights_knaves",)
    assert bundle.generators == ("ada", "bo", "cy", "dee")
    assert bundle.policy.posterior is not None


def test_a_folder_of_the_same_name_is_named_by_its_path():
    assert [is_packaged(run_address(name)) for name in ("demo", "./demo", "runs/demo", "s3://demo/demo")] == [
        True, False, False, False,
    ]  # fmt: skip


def test_nothing_is_stored_in_it():
    bundle = load_bundle(AppArgs(run_dir="demo"))

    assert (bundle.records, bundle.ledger_file) == (None, None)


def test_decisions_about_it_are_stored_in_a_folder_that_is_named(tmp_path):
    args = AppArgs.model_validate({"run_dir": "demo", "records": {"folder": str(tmp_path)}})

    assert load_bundle(args).records.folder == str(tmp_path)


def test_a_ceiling_of_a_day_needs_a_file_elsewhere(tmp_path):
    limits = {"per_day": {"candidates": 10}}

    with pytest.raises(ConfigError, match=r"set limits\.ledger_file"):
        load_bundle(AppArgs.model_validate({"run_dir": "demo", "limits": limits}))
    ledger = str(tmp_path / "ledger.sqlite")
    args = AppArgs.model_validate({"run_dir": "demo", "limits": {**limits, "ledger_file": ledger}})
    assert load_bundle(args).ledger_file == ledger


def test_the_readmes_program_chooses_by_it(repository, capsys):
    before = files()
    (program,) = re.findall(r"```python\n(.*?)```", (repository / "README.md").read_text(), flags=re.DOTALL)
    exec(program, {})

    assert capsys.readouterr().out.startswith('accept {"Ava": "knave", "Zoey": "knight"} ')
    assert files() == before
