"""Requests on their way to generators: in which blocks they wait on disk."""

import pytest

from raydebm.config import parse_recipe
from raydebm.pipeline.ray.candidate_blocks import GroupSpools
from raydebm.records import GenerationRequest, Sampling
from raydebm.run.folder import Folder
from raydebm.run.spool import Spool

HTTP = [{"kind": "openai", "name": name, "model": "m", "api_key_env": None} for name in "gh"]
LOCAL = [{"kind": "transformers", "name": name, "model": "m", "batch_size": 3} for name in "lm"]


def asked(number, generator, content="x"):
    return number, GenerationRequest(
        task="toy",
        problem_id=f"p{number}",
        generator=generator,
        messages=({"role": "user", "content": content},),
        sampling=Sampling(),
        seed=number,
    )


@pytest.fixture
def group(tmp_path):
    tree = {"name": "test", "task": {"name": "toy"}, "generators": [*HTTP, *LOCAL], "generation": {"num_processes": 2}}
    recipe = parse_recipe(tree)
    return GroupSpools(
        recipe.generators, recipe.generation, lambda kind: Spool(Folder(str(tmp_path)), kind), total=1000
    )


def positions(requests):
    return [table["position"].to_pylist() for table in requests.spool.tables()]


def test_endpoints_alternate_and_local_requests_wait_apart(group):
    for number, generator in enumerate("ggghhl"):
        group.add(asked(number, generator))
    group.flush()

    assert positions(group.http) == [[0, 3, 1, 4, 2]]
    assert positions(group.local) == [[5]]
    assert group.num_requests == 6


def test_blocks_for_endpoints_have_64_rows(group):
    for number in range(150):
        group.add(asked(number, "g"))
    group.flush()

    assert list(map(len, positions(group.http))) == [64, 64, 22]


def test_local_blocks_hold_one_models_requests_by_length(group):
    """Eight requests of two processes: four at a time, and three decode together."""
    for number, (generator, length) in enumerate(zip("lllllmmm", (5, 1, 4, 2, 3, 9, 8, 7), strict=True)):
        group.add(asked(number, generator, "x" * length))
    group.flush()

    assert positions(group.local) == [[1, 3, 4], [2, 0], [7, 6, 5]]


def test_a_full_window_is_written_before_the_last_request(group, monkeypatch):
    monkeypatch.setattr("raydebm.pipeline.ray.candidate_blocks.WINDOW_REQUESTS", 4)
    for number in range(6):
        group.add(asked(number, "g"))

    assert positions(group.http) == [[0, 1, 2, 3]]

    group.flush()

    assert positions(group.http) == [[0, 1, 2, 3], [4, 5]]
