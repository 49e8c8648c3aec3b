"""What makes a stage run again, and what does not."""

import copy

import pytest

from raydebm.config import parse_recipe
from raydebm.distributed.fingerprints import stage_fingerprint

TASK = {
    "name": "routing",
    "prompt": "Which device?",
    "output": {"kind": "json", "schema": {"type": "object", "properties": {"device": {"type": "string"}}}},
}
TREE = {
    "name": "tiny",
    "task": {"name": "gsm8k"},
    "generators": [{"kind": "openai", "name": "ada", "model": "m", "base_url": "http://127.0.0.1:9/v1"}],
}


def fingerprint(stage, **changes):
    return stage_fingerprint(stage, parse_recipe(TREE | changes))


@pytest.mark.parametrize("changed", [{"max_in_flight": 3}, {"timeout_s": 9.0}, {"max_retries": 1}])
def test_how_fast_a_generator_is_asked_repeats_nothing(changed):
    assert fingerprint("candidates", generators=[TREE["generators"][0] | changed]) == fingerprint("candidates")


def test_where_the_scorer_runs_repeats_nothing():
    assert fingerprint("energies", scorer={"device": "cpu"}) == fingerprint("energies")


@pytest.mark.parametrize(
    "changed", [{"scorer": {"pooling": "mean"}}, {"training": {"loss": "listwise"}}, {"pairs": {"max_correct": 2}}]
)
def test_what_is_learnt_trains_again(changed):
    assert fingerprint("scorer", **changed) != fingerprint("scorer")


def test_what_is_learnt_leaves_the_candidates_alone():
    assert fingerprint("candidates", scorer={"pooling": "mean"}) == fingerprint("candidates")


def test_a_tasks_own_field_counts_whatever_its_name():
    other = copy.deepcopy(TASK)
    other["output"]["schema"]["properties"]["device"]["type"] = "integer"
    found = [fingerprint("problems", task={"name": "routing", "definition": task}) for task in (TASK, other)]
    assert found[0] != found[1]
