"""Train the adapters of a recipe as a Ray job: `ray job submit -- python jobs/train_all.py`.

Add `--working-dir .` if the cluster does not have the repository. The options are those of `raydebm run`. Without
`--config`, the adapters of `raydebm demo` are trained, offline.
"""

import sys
from pathlib import Path

# A submitted job runs from an unpacked copy of the working directory, where the package may not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from raydebm.cli import main
from raydebm.cli.starter import RECIPE


def arguments(given: list[str], folder: Path) -> list[str]:
    """Add the demo's recipe to arguments without a recipe.

    Args:
        given: arguments of the command line.
        folder: working directory of the job. Ray may remove an unpacked copy, so its run is written to the home folder.
    """
    if any(argument.startswith(("-c", "--config")) for argument in given):
        return given
    is_copy = any(part.startswith("_ray_pkg_") for part in folder.parts)
    elsewhere = ["--run-dir", str(Path.home() / "runs" / "demo")] if is_copy else []
    return ["--config", str(RECIPE), *elsewhere, *given]


if __name__ == "__main__":
    main(["run", "--until", "scorer", *arguments(sys.argv[1:], Path.cwd())])
