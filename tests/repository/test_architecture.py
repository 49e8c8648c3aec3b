"""The rules of the house: imports point down, nothing heavy loads early, the documented tree is the tree on disk."""

import ast
import graphlib
import importlib.util
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).parents[2] / "benchmarks" / "architecture_figures.py"
_SPEC = importlib.util.spec_from_file_location(_SCRIPT.stem, _SCRIPT)
architecture_figures = importlib.util.module_from_spec(_SPEC)
sys.modules[_SCRIPT.stem] = architecture_figures  # dataclasses look their module up
_SPEC.loader.exec_module(architecture_figures)


def modules_loaded_by(statement):
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize("statement", ["import raydebm", "import raydebm.cli", "import raydebm.tasks, raydebm.config"])
def test_light_imports_load_neither_ray_nor_torch(statement):
    assert not modules_loaded_by(statement) & {"ray", "torch", "transformers", "peft", "vllm", "matplotlib"}


def test_triage_loads_neither_ray_nor_torch():
    assert not modules_loaded_by("import raydebm.decision.loop") & {"ray", "torch", "transformers"}


def test_the_pipeline_loads_neither_ray_nor_torch_until_a_stage_needs_them():
    loaded = modules_loaded_by(
        "import raydebm.pipeline.studies.reproduction, raydebm.pipeline.studies.folds, raydebm.pipeline.plan"
    )

    assert not loaded & {"ray", "torch", "transformers"}


@pytest.mark.parametrize("package", ["run", "pipeline", "distributed"])
def test_modules_of_the_lower_floors_can_be_imported_in_any_order(repository, package):
    """No circle of imports, the packages' own ``__init__`` counted in."""
    folder = repository / "raydebm" / package
    graph = {}
    for file in folder.rglob("*.py"):
        parts = file.relative_to(repository).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        imported = re.findall(r"^from (raydebm\.[\w.]+) import", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        needed = {".".join(path.split(".")[:end]) for path in imported for end in range(2, path.count(".") + 2)}
        graph[name] = {other for other in needed if other != name and not name.startswith(f"{other}.")}

    assert list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError


def test_every_module_of_distributed_imports_ray(repository):
    modules = [*(repository / "raydebm" / "distributed").glob("[a-z]*.py")]
    without = [
        file.name
        for file in modules
        if not re.search(r"^\s*(import|from) ray\b", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    ]

    assert without == []


def test_help_lists_every_job_as_a_verb(repository):
    done = subprocess.run([sys.executable, "-m", "raydebm", "--help"], capture_output=True, text=True, check=True)
    verbs = set(re.findall(r"^\s{2}(\S+)\s{2,}", done.stdout, flags=re.MULTILINE))
    jobs = {file.stem.replace("train_all", "train") for file in (repository / "jobs").glob("*.py")}

    assert jobs <= verbs


def test_import_contracts_hold(repository):
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
        capture_output=True, text=True, check=False, cwd=repository,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr


def documented_tree(repository):
    """Paths of the first ```text block after the heading «Where things are» of docs/architecture.md."""
    text = (repository / "docs" / "architecture.md").read_text(encoding="utf-8")
    block = text.split("## Where things are", 1)[1].split("```text\n", 1)[1].split("```", 1)[0]
    paths, folders = set(), []
    for line in block.splitlines():
        entry = re.match(r"^((?:  )*)(\S+)", line)
        if entry is None:
            continue
        depth, name = len(entry.group(1)) // 2, entry.group(2)
        folders[depth:] = [name.rstrip("/")]
        paths.add("/".join(folders) + ("/" if name.endswith("/") else ""))
    return paths


def test_everything_in_the_documented_tree_exists(repository):
    paths = documented_tree(repository)

    assert [path for path in sorted(paths) if not (repository / path).exists()] == []


def test_every_module_of_the_package_is_in_the_documented_tree(repository):
    paths = documented_tree(repository)
    on_disk = {
        str(file.relative_to(repository)) + ("/" if file.is_dir() else "")
        for file in (repository / "raydebm").iterdir()
        if not file.name.startswith(("_", ".")) and file.name != "py.typed"
    }

    assert on_disk - paths == set()


def test_every_top_level_entry_is_in_the_documented_tree(repository):
    paths = {path.split("/")[0] for path in documented_tree(repository)}
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True, cwd=repository).stdout
    on_disk = {name.split("/")[0] for name in listed.split() if not name.startswith(".")}

    assert on_disk - paths == set()


def test_no_module_outside_tasks_names_a_task(repository):
    """A benchmark is known by its plug-in alone; the embedded models are made for one, and say so."""
    allowed = {"tasks", "embedded"}
    named = [
        str(file.relative_to(repository))
        for file in (repository / "raydebm").rglob("*.py")
        if file.relative_to(repository / "raydebm").parts[0] not in allowed
        and re.search(r"gsm8k|knights_knaves|\bmusr\b|travelplanner|math500|\btaco\b", file.read_text(encoding="utf-8"))
    ]

    assert named == []


@pytest.fixture(scope="module")
def tree(repository):
    """The package as benchmarks/architecture_figures.py reads it."""
    return architecture_figures.Tree.read(repository)


def test_no_sub_package_imports_one_that_imports_it(tree):
    """Among the modules and sub-packages of each folder; imports inside of functions and for types count too."""
    assert {name for name in tree.packages if architecture_figures.cycles(tree.entries(name))} == set()


SHALLOW = (
    "evaluation", "decision", "decisions", "pipeline", "confounding", "scorer", "generators", "serving", "serving.core",
    "serving.api", "serving.ray",
)  # fmt: skip


@pytest.mark.parametrize("package", SHALLOW)
def test_imports_of_a_package_have_at_most_seven_levels(tree, package):
    assert architecture_figures.levels(tree.entries(f"raydebm.{package}")) <= 7


def test_no_two_modules_share_a_name_but_for_layers_and_roles(tree):
    assert tree.confusing_modules() == []


SHARED_CLASS_NAMES = {"Choice"}
"""``raydebm.Choice`` is what ``best_of`` decides, and OpenAI's schema calls each completion of a chat a choice."""


def test_no_two_classes_share_a_name(tree):
    counts = Counter(
        node.name for module in tree.parsed.values() for node in module.body if isinstance(node, ast.ClassDef)
    )

    assert {name for name, count in counts.items() if count > 1} <= SHARED_CLASS_NAMES


def test_public_functions_outside_three_packages_are_documented(tree):
    """Their own words, or those of the base class or protocol that they carry out."""
    open_packages = ("raydebm.serving", "raydebm.scorer", "raydebm.distributed")
    undocumented = [
        place
        for place, _, documented in tree.public_functions()
        if not documented and not place.startswith(open_packages)
    ]

    assert undocumented == []
