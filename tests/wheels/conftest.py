"""Both distributions as wheels, built from a copy of the repository, and environments that hold nothing but them."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement


@dataclass(frozen=True)
class Environment:
    """A virtual environment outside of the repository."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def run(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Call its Python; paths of this process do not reach it."""
        return subprocess.run(
            [self.python, *arguments], capture_output=True, text=True, check=False, timeout=600, cwd=cwd,
            env={**own_variables(), "COLUMNS": "100"},
        )  # fmt: skip


def own_variables() -> dict[str, str]:
    """This process's environment without the paths that would show a repository to another one."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "RAY_ADDRESS")}


@pytest.fixture(scope="session")
def wheels(repository, tmp_path_factory):
    """Paths of the two wheels, by distribution."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    for name, more in (("raydebm", ()), ("client", ("build",))):
        left_out = shutil.ignore_patterns("__pycache__", "*.egg-info", *more)
        shutil.copytree(repository / name, copy / name, symlinks=True, ignore=left_out)
    for name in ("pyproject.toml", "README.md", "LICENSE", "serve_config.yaml", "cluster.yaml"):
        shutil.copy(repository / name, copy / name)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", out]
    subprocess.run([*build, copy, copy / "client"], check=True, capture_output=True)
    return {file.name.split("-")[0]: file for file in out.glob("*.whl")}


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """Makes an environment with a wheel installed and further folders on its path."""

    def make(wheel: Path, *others: Path) -> Environment:
        made = Environment(tmp_path_factory.mktemp("environment"))
        venv.create(made.folder, with_pip=False, symlinks=True)
        [packages] = made.folder.glob("lib/python*/site-packages")
        pip = [sys.executable, "-m", "pip", "--python", made.python, "install", "--quiet", "--no-deps", "--no-index"]
        # Without PYTHONPATH, and the other folders afterwards: pip skips a distribution that it finds elsewhere.
        subprocess.run([*pip, str(wheel)], check=True, capture_output=True, env=own_variables())
        (packages / "others.pth").write_text("".join(f"{folder}\n" for folder in others), encoding="utf-8")
        return made

    return make


def required(distribution: str) -> set[str]:
    """Names of the distributions that one needs, directly or not, without extras."""
    names, waiting = set[str](), [distribution]
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            needs = map(Requirement, importlib.metadata.requires(name) or [])
            waiting += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return names


@pytest.fixture(scope="session")
def httpx_alone(tmp_path_factory):
    """A folder that holds httpx and what it needs, as links to what is installed."""
    folder = tmp_path_factory.mktemp("httpx")
    for name in required("httpx"):
        for file in importlib.metadata.files(name) or []:
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (folder / top).exists():
                (folder / top).symlink_to(file.locate().parents[len(file.parts) - 1] / top)
    return folder
