"""The rules of the house: imports point down, nothing heavy loads early, the documented tree is the tree on disk."""

import ast
import re
import subprocess
import sys
from collections import Counter

import pytest


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
        "import raydebm.pipeline.studies.reproduction, raydebm.pipeline.studies.trainings, raydebm.pipeline.plan"
    )

    assert not loaded & {"ray", "torch", "transformers"}


def test_every_module_of_the_pipelines_ray_folder_imports_ray(repository):
    modules = [*(repository / "raydebm" / "pipeline" / "ray").glob("[a-z]*.py")]
    without = [
        file.name
        for file in modules
        if not re.search(r"^\s*(import|from) ray\b", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    ]

    assert without == []


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
        if not file.name.startswith(("_", "."))
        and file.name != "py.typed"
        and (file.is_file() or any(file.rglob("*.py")))
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


SHARED_CLASS_NAMES = {"Choice"}
"""``raydebm.Choice`` is what ``best_of`` decides, and OpenAI's schema calls each completion of a chat a choice."""


def test_no_two_classes_share_a_name(repository):
    counts = Counter(
        node.name
        for file in (repository / "raydebm").rglob("*.py")
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    )

    assert {name for name, count in counts.items() if count > 1} <= SHARED_CLASS_NAMES
