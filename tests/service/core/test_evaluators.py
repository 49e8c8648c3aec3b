"""What candidates are judged by: equal texts are read once, and failing baselines leave the other evidence."""

import asyncio

import pytest

from raydebm.errors import ServiceError
from raydebm.records import Candidate, Energies, Problem
from raydebm.service.core import Activity, Judges


@pytest.mark.parametrize(("reasoning", "expected"), [("answer", ["four"]), ("all", ["two and two\n\nfour"])])
def test_what_is_scored_of_a_candidate_that_thought_first(reasoning, expected):
    class Recording:
        async def score(self, texts):
            self.texts = [text.text for text in texts]
            return [Energies(candidate_id=text.candidate_id, members=(1.0,)) for text in texts]

    backend = Recording()
    thought = Candidate(candidate_id="c", task="t", problem_id="p", generator="g", text="four", reasoning="two and two")

    scorer = Judges(backend, Activity(), reasoning=reasoning)
    [energies] = asyncio.run(scorer.score(Problem(task="t", problem_id="p", prompt="q"), [thought]))

    assert (backend.texts, energies.candidate_id) == (expected, "c")


class ReadingBackend:
    """Gives every text its length as a score, or raises."""

    def __init__(self, error=None):
        self.error, self.texts, self.score = error, [], None

    async def baseline_scores(self, texts):
        if self.error is not None:
            raise self.error
        self.texts.extend(text.text for text in texts)
        return [{"reader": float(len(text.text))} for text in texts]


def written(name, text):
    return Candidate(candidate_id=name, task="t", problem_id="p", generator="g", text=text)


def test_equal_texts_are_read_once():
    backend = ReadingBackend()
    baselines = Judges(backend, Activity())
    problem = Problem(task="t", problem_id="p", prompt="q")

    scores = asyncio.run(baselines.scores(problem, [written("a", "xy"), written("b", "z"), written("c", "xy")]))

    assert backend.texts == ["xy", "z"]
    assert scores == [{"reader": 2.0}, {"reader": 1.0}, {"reader": 2.0}]


@pytest.mark.parametrize("error", [ServiceError("gone", 503, "unavailable"), RuntimeError("out of memory")])
def test_baselines_that_do_not_work_leave_the_other_evidence(error):
    baselines = Judges(ReadingBackend(error), Activity())

    assert asyncio.run(baselines.scores(Problem(task="t", problem_id="p", prompt="q"), [written("a", "xy")])) == [{}]
