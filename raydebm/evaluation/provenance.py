"""Provenance of a report's numbers: the command and the versions of its dependencies."""

import platform
import shlex
import sys
from importlib import metadata
from pathlib import Path


def command_line() -> str:
    """This process's command line, as typed by a user."""
    program, *arguments = sys.argv
    path = Path(program)
    if path.name == "raydebm" or path.parts[-2:] == ("raydebm", "__main__.py"):
        program = "raydebm"
    return shlex.join([program, *arguments])


def versions() -> dict[str, str]:
    """Installed versions of the dependencies, read without importing them."""
    by_name = {"python": platform.python_version()}
    for name in ("raydebm", "torch", "transformers", "peft", "ray", "numpy", "scipy"):
        try:
            by_name[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return by_name
