"""Train the adapters of a recipe as a Ray job: `ray job submit -- python jobs/train_all.py`.

Add `--working-dir .` if the cluster has no clone. The options are those of `raydebm run --until scorer`. Without
`--config`, the recipe of `raydebm demo` is trained, offline.
"""

import sys
from pathlib import Path

# A submitted job runs from an unpacked copy of the working directory, where the package may not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from raydebm.cli import main
from raydebm.cli.starter import RECIPE


def arguments(given: list[str], folder: Path) -> list[str]:
    """Complete the arguments of a job that names no recipe.

    Args:
        given: arguments of the command line.
        folder: working directory of the job. Ray may remove an unpacked copy, with any run in it.
    """
    if any(argument.startswith(("-c", "--config")) for argument in given):
        return given
    is_copy = any(part.startswith("_ray_pkg_") for part in folder.parts)
    elsewhere = ["--run-dir", str(Path.home() / "runs" / "demo")] if is_copy else []
    return ["--config", str(RECIPE), *elsewhere, *given]


if __name__ == "__main__":
    main(["run", "--until", "scorer", *arguments(sys.argv[1:], Path.cwd())])
