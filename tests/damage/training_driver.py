"""The program that is killed: trains a tiny ensemble, as ``raydebm run`` would, and resumes.

``python training_driver.py BACKBONE RUN_DIR NUM_EPOCHS [ADDRESS]``; without an address on a Ray of its own.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from scorer_parts import groups_of, recipe_for

from raydebm.config import TaskConfig
from raydebm.pipeline.ray.session import ray_session
from raydebm.pipeline.ray.train import train_ensemble
from raydebm.run.directory import RunDir


def main(backbone: str, run_dir: str, num_epochs: str, address: str | None = None) -> None:
    """Train three adapters."""
    training = {"max_epochs": int(num_epochs), "patience": int(num_epochs)}
    # One worker at a time on 8 CPUs: each further one would be three more processes to start, after every kill.
    recipe = recipe_for(Path(backbone), num_adapters=3, training=training, cpus_per_adapter=5)
    recipe = recipe.model_copy(update={"task": TaskConfig(name="gsm8k")})  # any task that is built in
    if address is not None:
        os.environ["RAY_ADDRESS"] = address
    with ray_session():
        train_ensemble(recipe=recipe, run=RunDir(run_dir), train=groups_of(0, 200), validation=groups_of(500, 8))


if __name__ == "__main__":
    main(*sys.argv[1:])
