"""Candidates with their labels, one problem after the other."""

from collections import Counter

import pytest
from tiny_run import recipe_of

from raydebm.errors import PoolError
from raydebm.pipeline.context import StageContext
from raydebm.pipeline.stages.pairs import complete_pools
from raydebm.records import Candidate, Label, Problem, Verdict
from raydebm.run.tables import SplitProblem


def labelled(problem_ids, *, labels_of=None):
    ids = [f"c{number}" for number in range(len(problem_ids))]
    for name, labelled_name, problem_id in zip(ids, labels_of or ids, problem_ids, strict=True):
        candidate = Candidate(candidate_id=name, task="t", problem_id=problem_id, generator="g", text="text")
        yield candidate, Label(candidate_id=labelled_name, problem_id=problem_id, verdict=Verdict.CORRECT)


def pools(problem_ids):
    labelled_pools = complete_pools(labelled(problem_ids), Counter(problem_ids))
    return [
        (name, [one.candidate_id for one in candidates], len(labels)) for name, candidates, labels in labelled_pools
    ]


def test_a_problem_is_complete_with_its_last_candidate():
    assert pools("ppqr") == [("p", ["c0", "c1"], 2), ("q", ["c2"], 1), ("r", ["c3"], 1)]


def test_a_problem_is_given_out_before_the_next_one_is_read():
    read = []

    def watched():
        for each in labelled("pq"):
            read.append(each[0].candidate_id)
            yield each

    next(complete_pools(watched(), Counter("pq")))

    assert read == ["c0"]


def test_a_label_in_the_wrong_place_is_named():
    with pytest.raises(PoolError, match="found 'c1', expected 'c0'; label them again"):
        list(complete_pools(labelled("pp", labels_of=["c1", "c0"]), Counter("pp")))


def test_a_training_problem_that_is_a_test_problem_in_other_spelling_is_in_no_split(tmp_path):
    context = StageContext(recipe=recipe_of(tmp_path))
    texts = {"a": "How many?", "b": "How much?", "c": "Why?", "t": "how  MANY?"}
    context.run.write_problems(
        SplitProblem(problem=Problem(task="t", problem_id=name, prompt=text), split="test" if name == "t" else "train")
        for name, text in texts.items()
    )
    splits = context.splits()

    assert sorted(splits["train"] + splits["validation"]) == ["b", "c"]
    assert splits["test"] == ["t"]
