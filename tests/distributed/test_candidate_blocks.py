"""Requests on their way to generators: in which blocks they wait on disk."""

from dataclasses import replace

import pytest

from raydebm.config import parse_recipe
from raydebm.distributed.candidate_blocks import GroupSpools
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


def test_samples_of_one_request_stay_in_one_block(tmp_path):
    """Six samples each of 12 problems, three per request: 63 rows, and the group that would be cut comes as a whole."""
    together = [HTTP[0] | {"samples_per_request": 3}]
    recipe = parse_recipe({"name": "test", "task": {"name": "toy"}, "generators": together})
    group = GroupSpools(recipe.generators, recipe.generation, lambda kind: Spool(Folder(str(tmp_path)), kind), total=72)
    for number in range(72):
        position, request = asked(number, "g")
        group.add((position, replace(request, problem_id=f"p{number % 12}")))
    group.flush()

    first, second = positions(group.http)
    assert (len(first), len(second)) == (66, 6)
    assert first[:6] == [0, 12, 24, 1, 13, 25]


def test_samples_of_a_prompt_that_is_to_be_kept_stay_in_one_block(tmp_path):
    keeping = [HTTP[0] | {"prompt_cache": "key"}]
    recipe = parse_recipe({"name": "test", "task": {"name": "toy"}, "generators": keeping})
    group = GroupSpools(recipe.generators, recipe.generation, lambda kind: Spool(Folder(str(tmp_path)), kind), total=80)
    for number in range(80):
        position, request = asked(number, "g")
        group.add((position, replace(request, problem_id=f"p{number % 2}")))
    group.flush()

    (block,) = positions(group.http)
    assert block == [*range(0, 80, 2), *range(1, 80, 2)]


def test_requests_to_each_batch_api_wait_apart(tmp_path):
    apis = [{"kind": "openai_batch", "name": name, "model": "m"} for name in "bc"]
    recipe = parse_recipe({"name": "test", "task": {"name": "toy"}, "generators": [HTTP[0], *apis]})
    group = GroupSpools(recipe.generators, recipe.generation, lambda kind: Spool(Folder(str(tmp_path)), kind), total=5)
    for number, generator in enumerate("gbcbg"):
        group.add(asked(number, generator))
    group.flush()

    assert {name: positions(requests) for name, requests in group.batches.items()} == {"b": [[1, 3]], "c": [[2]]}
    assert positions(group.http) == [[0, 4]]
    assert group.num_requests == 5


def test_local_blocks_hold_one_models_requests_by_length(group):
    """Eight requests of two processes: four at a time, and three decode together."""
    for number, (generator, length) in enumerate(zip("lllllmmm", (5, 1, 4, 2, 3, 9, 8, 7), strict=True)):
        group.add(asked(number, generator, "x" * length))
    group.flush()

    assert positions(group.local) == [[1, 3, 4], [2, 0], [7, 6, 5]]


def test_a_full_window_is_written_before_the_last_request(group, monkeypatch):
    monkeypatch.setattr("raydebm.distributed.candidate_blocks.WINDOW_REQUESTS", 4)
    for number in range(6):
        group.add(asked(number, "g"))

    assert positions(group.http) == [[0, 1, 2, 3]]

    group.flush()

    assert positions(group.http) == [[0, 1, 2, 3], [4, 5]]
