"""Installed, not only cloned: what a user does with the wheel in an empty folder."""

import sysconfig
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHOOSE = """
from raydebm import best_of

puzzle = (
    "A very special island is inhabited only by knights and knaves. Knights always tell the truth, and knaves always "
    'lie. You meet 2 inhabitants: Ava, and Zoey. Ava said, "Zoey is a knave." Zoey said, "Ava is a knight and Zoey is '
    'a knight." So who is a knight and who is a knave?'
)
choice = best_of(puzzle, ['{"Ava": "knave", "Zoey": "knave"}', '{"Ava": "knight", "Zoey": "knave"}'], run="demo")
print(choice.decision, choice.selected)
"""
"""Ava is a knight: else Zoey were one and her statement true, by which Ava is a knight."""


@pytest.fixture(scope="module")
def installed(wheels, environment):
    """The wheel, with the dependencies of this environment: a path entry runs no .pth files, so no editable install."""
    return environment(wheels["raydebm"], Path(sysconfig.get_paths()["purelib"]))


def test_the_package_is_imported_from_the_wheel(installed, tmp_path):
    done = installed.run("-c", "import raydebm; print(raydebm.__file__)", cwd=tmp_path)

    assert Path(done.stdout.strip()).is_relative_to(installed.folder), done.stderr


def test_it_holds_the_embedded_models_a_finished_run_and_not_the_scripts_that_made_them(wheels):
    with zipfile.ZipFile(wheels["raydebm"]) as wheel:
        parts = {name.split("/")[2] for name in wheel.namelist() if name.startswith("raydebm/embedded/")}
    assert parts == {"__init__.py", "MODEL_CARD.md", "demo_run", "models", "pools"}


@pytest.mark.parametrize("name", ["serve_config.yaml", "cluster.yaml"])
def test_it_holds_the_files_at_the_top_of_the_repository(wheels, repository, name):
    with zipfile.ZipFile(wheels["raydebm"]) as wheel:
        assert wheel.read(f"raydebm/cli/starter/{name}") == (repository / name).read_bytes()


def test_the_finished_run_chooses_in_an_empty_folder_and_writes_nothing(installed, tmp_path):
    [folder] = installed.folder.glob("lib/python*/site-packages/raydebm/embedded/demo_run")
    before = sorted(folder.rglob("*"))
    done = installed.run("-c", CHOOSE, cwd=tmp_path)

    assert done.stdout.split() == ["accept", "1"], done.stderr
    assert (sorted(folder.rglob("*")), list(tmp_path.iterdir())) == (before, [])


def test_init_makes_a_folder_in_which_the_recipe_can_be_planned(installed, tmp_path):
    made = installed.run("-m", "raydebm", "init", cwd=tmp_path)
    planned = installed.run("-m", "raydebm", "run", "--config", "recipe.yaml", "--dry-run", cwd=tmp_path)

    assert made.returncode == 0, made.stderr
    assert {file.name for file in tmp_path.iterdir()} == {"recipe.yaml", "serve_config.yaml", "cluster.yaml"}
    assert planned.returncode == 0, planned.stderr
    assert "150 problems, 5,400 requests" in planned.stdout


def test_a_second_init_overwrites_nothing(installed, tmp_path):
    (tmp_path / "recipe.yaml").write_text("mine")
    done = installed.run("-m", "raydebm", "init", cwd=tmp_path)

    assert done.returncode == 2
    assert "recipe.yaml in '.' already exist" in done.stderr
    assert (tmp_path / "recipe.yaml").read_text() == "mine"


@pytest.mark.ray
def test_candidates_are_sampled_from_the_embedded_models(installed, tmp_path):
    """Ray's workers import the wheel too, and the models are in it."""
    installed.run("-m", "raydebm", "init", cwd=tmp_path)
    few = ("task.train.limit=2", "task.test.limit=1", "generation.num_samples=1", "generation.greedy=false")
    done = installed.run("-m", "raydebm", "run", "--until", "candidates", "--config", "recipe.yaml", *few, cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "runs" / "demo" / "candidates" / "candidates.parquet").exists()
