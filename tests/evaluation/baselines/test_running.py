import pytest
import torch

from raydebm.errors import PoolError, ScoringError
from raydebm.evaluation.baselines import TextScore, score_candidates
from raydebm.records import CandidateScore, Problem


class Lengths:
    """Scores a text by its length; refuses "bad"."""

    name = "lengths"

    def __init__(self):
        self.calls = []

    def score(self, pools):
        self.calls.append([(pool.problem.problem_id, pool.texts) for pool in pools])
        return [
            [TextScore.failed("bad text") if text == "bad" else TextScore.of(len(text)) for text in pool.texts]
            for pool in pools
        ]


def problems(*names):
    return {name: Problem(task="toy", problem_id=name, prompt="?") for name in names}


def test_every_candidate_gets_a_row_in_its_place(candidate):
    rows = [candidate("a", text="xyz"), candidate("b", text=None, error="HTTP 500"), candidate("c", text="bad")]

    scores = score_candidates(Lengths(), problems("p"), rows)

    assert scores == [
        CandidateScore(candidate_id="a", name="lengths", score=3.0),
        CandidateScore(candidate_id="b", name="lengths", score=None, error="no text to score: HTTP 500"),
        CandidateScore(candidate_id="c", name="lengths", score=None, error="bad text"),
    ]


def test_equal_texts_of_a_problem_are_scored_once(candidate):
    scorer = Lengths()
    rows = [candidate("a", text="x"), candidate("b", text="x"), candidate("c", text="x", problem_id="q")]

    score_candidates(scorer, problems("p", "q"), rows)

    assert scorer.calls == [[("p", ("x",)), ("q", ("x",))]]


def test_the_scorer_sees_a_bounded_number_of_problems_at_a_time(candidate):
    scorer, seen = Lengths(), []
    rows = [candidate(f"c{index}", problem_id=f"p{index}") for index in range(5)]

    score_candidates(
        scorer,
        problems(*(f"p{index}" for index in range(5))),
        rows,
        pools_per_call=2,
        on_progress=lambda done, total: seen.append((done, total)),
    )

    assert [len(call) for call in scorer.calls] == [2, 2, 1]
    assert seen == [(2, 5), (4, 5), (5, 5)]


class OneProblem(Lengths):
    """Has memory for one problem at a time, whose answers are short."""

    def score(self, pools):
        if len(pools) > 1 or len(pools[0].texts[0]) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")
        return super().score(pools)


def test_fewer_problems_at_a_time_are_scored_where_memory_is_too_small(candidate):
    rows = [candidate(f"c{index}", problem_id=f"p{index}", text="x" * index) for index in range(1, 5)]

    scores = score_candidates(OneProblem(), problems(*(f"p{index}" for index in range(1, 5))), rows)

    assert [row.score for row in scores] == [1.0, 2.0, 3.0, None]
    assert scores[-1].error == (
        "CUDA out of memory. Tried to allocate 9 GiB; choose a smaller model or a device with more memory"
    )


def test_a_candidate_of_an_unknown_problem_is_refused(candidate):
    with pytest.raises(PoolError, match="not among the problems"):
        score_candidates(Lengths(), problems("q"), [candidate("a")])


def test_a_scorer_that_loses_a_text_is_refused(candidate):
    class Forgetful:
        name = "forgetful"

        def score(self, pools):
            return [[] for _ in pools]

    with pytest.raises(ScoringError, match="'forgetful' gave"):
        score_candidates(Forgetful(), problems("p"), [candidate("a")])


def test_not_a_number_from_a_model_is_a_failed_score():
    assert TextScore.of(float("nan")).value is None
    assert "float32" in TextScore.of(float("inf")).error
