"""What candidates are judged by: the text that is scored, and equal texts are read once."""

import asyncio

import pytest

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


def test_equal_texts_are_read_once():
    class Recording:
        """Gives every text its length as a score."""

        score = None

        async def baseline_scores(self, texts):
            self.texts = [text.text for text in texts]
            return [{"reader": float(len(text))} for text in self.texts]

    backend = Recording()
    given = [
        Candidate(candidate_id=name, task="t", problem_id="p", generator="g", text=text)
        for name, text in (("a", "xy"), ("b", "z"), ("c", "xy"))
    ]

    scores = asyncio.run(Judges(backend, Activity()).scores(Problem(task="t", problem_id="p", prompt="q"), given))

    assert backend.texts == ["xy", "z"]
    assert scores == [{"reader": 2.0}, {"reader": 1.0}, {"reader": 2.0}]
