"""Make the packaged run from a finished run of the demo's recipe.

    raydebm run --config raydebm/cli/starter/recipe.yaml run_dir=runs/packaged
    python tools/embedded/demo_run.py runs/packaged

The packaged run has the files that the service and ``best_of`` read: recipe, adapters, policy, and a few test problems
without gold.
"""

import argparse
import logging
import shutil
from pathlib import Path

from raydebm.cli.starter import RECIPE
from raydebm.config import load_recipe
from raydebm.embedded import DEMO_RUN_FOLDER
from raydebm.errors import ConfigError, PoolError
from raydebm.run.directory import MANIFEST, RunDir
from raydebm.run.fingerprints import why_not_current
from raydebm.scorer.checkpoint import CARD_FILE, SCORER_FILES
from raydebm.scorer.pairs import held_out

logger = logging.getLogger(__name__)

NUM_PROBLEMS = 20
FILES = (
    *(f"scorer/{pattern}" for pattern in (*SCORER_FILES, CARD_FILE)),
    "calibration/policy.json",
    f"energies/{MANIFEST}",  # has the dtype in which the service must score
)  # fmt: skip


def pack(made: Path, target: Path = DEMO_RUN_FOLDER) -> int:
    """Replace the packaged run.

    Args:
        made: directory of a finished run of the demo's recipe.
        target: folder of the packaged run; its README.md stays.

    Returns:
        Bytes of the packaged run.

    Raises:
        ConfigError: the run has another recipe.
        PoolError: a stage is missing or was made with other settings.
    """
    run, packaged = RunDir(str(made)), RunDir(str(target))
    recipe = load_recipe(RECIPE)
    if run.recipe().model_copy(update={"run_dir": recipe.run_dir}) != recipe:
        raise ConfigError(f"{made} is a run of another recipe; run {RECIPE}")
    if reason := why_not_current("calibration", run.recipe(), run):
        raise PoolError(f"{made}: {reason}")
    for old in target.iterdir():
        if old.is_dir():
            shutil.rmtree(old)
    packaged.write_recipe(recipe)
    rows = run.problems()
    test = held_out(rows, recipe)
    packaged.write_problems([row for row in rows if row.problem.problem_id in test][:NUM_PROBLEMS])
    for pattern in FILES:
        for file in made.glob(pattern):
            copied = target / file.relative_to(made)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copied)
    return sum(file.stat().st_size for file in target.rglob("*") if file.is_file())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path, help="a finished run of the demo's recipe")
    logger.info("%s: %d bytes", DEMO_RUN_FOLDER, pack(parser.parse_args().run_dir))
