"""Candidates with their labels, one problem after the other."""

from collections import Counter

import pytest

from raydebm.errors import PoolError
from raydebm.pipeline.stages.pairs import pools_as_complete
from raydebm.records import Candidate, Label, Verdict


def labelled(problem_ids, *, labels_of=None):
    ids = [f"c{number}" for number in range(len(problem_ids))]
    for name, labelled_name, problem_id in zip(ids, labels_of or ids, problem_ids, strict=True):
        candidate = Candidate(candidate_id=name, task="t", problem_id=problem_id, generator="g", text="text")
        yield candidate, Label(candidate_id=labelled_name, problem_id=problem_id, verdict=Verdict.CORRECT)


def pools(problem_ids):
    labelled_pools = pools_as_complete(labelled(problem_ids), Counter(problem_ids))
    return [
        (name, [one.candidate_id for one in candidates], len(labels)) for name, candidates, labels in labelled_pools
    ]


def test_a_problem_is_complete_with_its_last_candidate():
    assert pools("ppqr") == [("p", ["c0", "c1"], 2), ("q", ["c2"], 1), ("r", ["c3"], 1)]


def test_problems_that_are_mixed_come_in_the_order_of_their_first_candidates():
    assert pools("pqqp") == [("p", ["c0", "c3"], 2), ("q", ["c1", "c2"], 2)]


def test_a_problem_is_given_out_before_the_next_one_is_read():
    read = []

    def watched():
        for each in labelled("pq"):
            read.append(each[0].candidate_id)
            yield each

    next(pools_as_complete(watched(), Counter("pq")))

    assert read == ["c0"]


def test_a_label_in_the_wrong_place_is_named():
    with pytest.raises(PoolError, match="label of candidate 'c1' stands where that of 'c0' should"):
        list(pools_as_complete(labelled("pp", labels_of=["c1", "c0"]), Counter("pp")))
