"""Starter files for ``raydebm init``.

``serve_config.yaml`` and ``cluster.yaml`` are links to the files at the top of the repository; a wheel has copies.
"""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent
RECIPE = FOLDER / "recipe.yaml"
SERVE_CONFIG = FOLDER / "serve_config.yaml"
CLUSTER = FOLDER / "cluster.yaml"
FILES = (RECIPE, SERVE_CONFIG, CLUSTER)
