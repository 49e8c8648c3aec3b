"""Requests on their way to generators: in which blocks they wait on disk."""

import pytest

from raydebm.config import parse_recipe
from raydebm.pipeline.ray.candidate_blocks import WaitingRequests
from raydebm.records import GenerationRequest, Sampling
from raydebm.run.folder import Folder
from raydebm.run.spool import read_slices

HTTP = [{"kind": "openai", "name": name, "model": "m", "api_key_env": None} for name in "gh"]
LOCAL = [{"kind": "transformers", "name": name, "model": "m", "batch_size": 3} for name in "lm"]


def asked(*entries):
    """One request per (generator, length of its chat), whose seed is its place."""
    return [
        GenerationRequest(
            task="toy",
            problem_id="p",
            generator=generator,
            messages=({"role": "user", "content": "x" * length},),
            sampling=Sampling(),
            seed=place,
        )
        for place, (generator, length) in enumerate(entries)
    ]


@pytest.fixture
def waiting(tmp_path):
    tree = {"name": "test", "task": {"name": "toy"}, "generators": [*HTTP, *LOCAL], "generation": {"num_processes": 2}}
    recipe = parse_recipe(tree)
    return WaitingRequests(recipe.generators, recipe.generation, Folder(str(tmp_path)), "spool", total=1000)


def places(spool):
    return [table["seed"].to_pylist() for block in spool.addresses for table in read_slices(block)]


def test_endpoints_alternate_in_blocks_of_64_and_local_requests_wait_apart(waiting):
    waiting.add(asked(*[("g", 1)] * 60, *[("h", 1)] * 10, ("l", 1)))

    first, second = places(waiting.http)
    assert (first[:4], len(first), len(second)) == ([0, 60, 1, 61], 64, 6)
    assert places(waiting.local) == [[70]]
    assert waiting.num_requests == 71


def test_local_blocks_hold_one_models_requests_by_length(waiting):
    """Eight requests of two processes: four at a time, and three decode together."""
    waiting.add(asked(*zip("lllllmmm", (5, 1, 4, 2, 3, 9, 8, 7), strict=True)))

    assert places(waiting.local) == [[1, 3, 4], [2, 0], [7, 6, 5]]
