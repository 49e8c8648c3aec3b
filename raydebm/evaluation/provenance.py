"""Where a report's numbers come from: the command that made them, and the versions that they depend on."""

import platform
import shlex
import sys
from importlib import metadata
from pathlib import Path


def command_line() -> str:
    """This process's command, as a user would type it again."""
    program, *arguments = sys.argv
    path = Path(program)
    if path.name == "raydebm" or path.parts[-2:] == ("raydebm", "__main__.py"):
        program = "raydebm"
    return shlex.join([program, *arguments])


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on, as installed; read without importing any of it."""
    by_name = {"python": platform.python_version()}
    for name in ("raydebm", "torch", "transformers", "peft", "ray", "numpy", "scipy"):
        try:
            by_name[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return by_name
