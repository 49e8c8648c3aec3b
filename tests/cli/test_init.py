"""``raydebm init`` writes files that run, and never overwrites without being told to."""

import pytest
import yaml

from raydebm.cli import starter
from raydebm.cli.runs import write_starter
from raydebm.config import load_recipe
from raydebm.errors import ConfigError

NAMES = {"recipe.yaml", "serve_config.yaml", "cluster.yaml"}


def test_it_writes_the_three_files_into_a_new_folder(raydebm, tmp_path):
    assert raydebm("init", tmp_path / "new" / "folder").returncode == 0
    assert {file.name for file in (tmp_path / "new" / "folder").iterdir()} == NAMES


def test_existing_files_are_named_and_nothing_is_written(tmp_path):
    (tmp_path / "cluster.yaml").write_text("mine")

    with pytest.raises(ConfigError, match=r"cluster\.yaml in .* already exist.*--force"):
        write_starter(tmp_path, force=False)

    assert [file.name for file in tmp_path.iterdir()] == ["cluster.yaml"]
    assert (tmp_path / "cluster.yaml").read_text() == "mine"


def test_force_overwrites(tmp_path):
    (tmp_path / "cluster.yaml").write_text("mine")

    write_starter(tmp_path, force=True)

    assert (tmp_path / "cluster.yaml").read_bytes() == starter.CLUSTER.read_bytes()


def test_a_file_in_place_of_the_folder_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match=r"folder '.*file.*' cannot be written: .*give another path"):
        write_starter(tmp_path / "file", force=False)


@pytest.mark.parametrize("name", ["serve_config.yaml", "cluster.yaml"])
def test_the_files_are_those_at_the_top_of_the_repository(repository, name):
    assert (starter.FOLDER / name).resolve() == repository / name


def test_serve_config_serves_the_run_of_the_recipe(tmp_path):
    """``serve run`` and ``raydebm run`` are called in the same folder."""
    write_starter(tmp_path, force=False)
    tree = yaml.safe_load((tmp_path / "serve_config.yaml").read_text(encoding="utf-8"))

    assert tree["applications"][0]["args"]["run_dir"] == load_recipe(starter.RECIPE).resolved_run_dir
