"""Which labelled problems a run's rules learn from."""

import hand_made
import pytest

from raydebm.pipeline.context import TRAIN, VALIDATION
from raydebm.pipeline.stages import posterior


@pytest.fixture
def pools(monkeypatch):
    """Two training problems, of which one is in every adapter's bag, and a validation problem with energies."""
    of_split = {
        split: [hand_made.make_pool((1, {"members": members}), (0, {"members": members}), problem_id=name)]
        for split, name, members in ((TRAIN, "out of bag", (1.0,)), (VALIDATION, "validation", (1.0, 2.0)))
    }
    of_split[TRAIN].append(hand_made.make_pool((1, {}), (0, {}), problem_id="in every bag"))
    monkeypatch.setattr(posterior, "evaluated_pools", lambda context, split: of_split[split])
    monkeypatch.setattr(posterior, "adapters_out_of_bag", lambda context: {"out of bag": (True, False)})
    return of_split


def test_rules_that_read_no_energies_learn_from_what_the_posterior_learns_from(pools):
    stack = posterior.labelled_stack(None, pools[VALIDATION])

    of_posterior = [*posterior.labelled_pools(pools[VALIDATION]), *posterior.out_of_bag(None)]
    assert [problem.problem_id for problem in stack.problems] == ["validation", "out of bag"]
    assert [pool.problem_id for pool in of_posterior] == ["validation", "out of bag"]


def test_they_see_no_energies_of_which_pools_have_different_numbers(pools):
    assert posterior.labelled_stack(None, pools[VALIDATION]).num_members == 0
