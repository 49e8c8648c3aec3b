"""The program that is killed: answers all requests of a storm, as ``raydebm run`` would, and resumes.

``python generation_driver.py '<json of Storm>' URL RUN_DIR [ADDRESS]``; without an address on a Ray of its own.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from damaged_generation import Storm

from raydebm.config import parse_recipe
from raydebm.pipeline.ray.generate import generate
from raydebm.pipeline.ray.session import ray_session
from raydebm.run.directory import RunDir


def main(storm: Storm, url: str, run_dir: str, address: str | None = None) -> None:
    """Answer the storm's requests and write their table."""
    endpoint = {
        "kind": "openai",
        "name": "g",
        "model": "m",
        "base_url": url,
        "api_key_env": None,
        "max_in_flight": storm.max_in_flight,
        "max_retries": 4,
        "timeout_s": 5.0,
    }
    generation = {"num_in_flight": storm.max_in_flight, "max_failed_frac": 1.0}
    recipe = parse_recipe(
        {"name": "storm", "task": {"name": "toy"}, "generators": [endpoint], "generation": generation}
    )
    if address is not None:
        os.environ["RAY_ADDRESS"] = address
    with ray_session():
        generate(storm.requests(), recipe=recipe, run=RunDir(run_dir))


if __name__ == "__main__":
    main(Storm(**json.loads(sys.argv[1])), *sys.argv[2:])
