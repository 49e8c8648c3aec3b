"""A finished run on embedded models, made once for all tests that read it."""

import os
import sys
from pathlib import Path

import pytest

from raydebm.pipeline.ray.session import ENVIRONMENT, OWN_CLUSTER_ENVIRONMENT

# What ray_session sets for a cluster of its own; `local_ray` is started without it.
for name, value in (ENVIRONMENT | OWN_CLUSTER_ENVIRONMENT).items():
    os.environ.setdefault(name, value)
sys.path.insert(0, str(Path(__file__).parent))  # for tiny_run and chat_endpoint
sys.path.insert(0, str(Path(__file__).parents[1] / "evaluation"))  # for hand_made


@pytest.fixture(scope="session")
def finished(local_ray, tmp_path_factory):
    """A finished run and what its stages reported."""
    from tiny_run import recipe_of

    from raydebm.pipeline.runner import Pipeline

    reports = []
    pipeline = Pipeline(recipe=recipe_of(tmp_path_factory.mktemp("run")), on_stage=reports.append)
    result = pipeline.evaluate()
    return pipeline, result, tuple(reports)  # what tests run again later is not among them
