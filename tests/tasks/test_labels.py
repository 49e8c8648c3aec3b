"""Labels. The task is a small fake whose checker does what the text says."""

import math

import pytest

from raydebm.records import Candidate, Gold, Problem, Verdict
from raydebm.tasks.base import Judgement
from raydebm.tasks.labels import label_candidate


class Checker:
    name = "fake"

    def judge(self, problem, gold, text):
        if text == "crash":
            raise RecursionError("too deep")
        if text.startswith("part "):
            parts = {"budget": float(text.split()[1])}
            return Judgement(verdict=Verdict.INCORRECT, violation_score=0.5, severity=5, parts=parts)
        if text.startswith("score "):
            return Judgement(verdict=Verdict.INCORRECT, violation_score=float(text.split()[1]))
        return Judgement(verdict=Verdict.CORRECT if text == gold.value["answer"] else Verdict.INCORRECT, reason="seen")


PROBLEM = Problem(task="fake", problem_id="p", prompt="?")
GOLD = Gold(task="fake", problem_id="p", value={"answer": "yes"})


def candidate(text, *, error=None, problem_id="p"):
    return Candidate(candidate_id="c", task="fake", problem_id=problem_id, generator="g", text=text, error=error)


@pytest.mark.parametrize(("text", "verdict"), [("yes", Verdict.CORRECT), ("no", Verdict.INCORRECT)])
def test_the_checkers_verdict_is_the_label(text, verdict):
    label = label_candidate(Checker(), PROBLEM, GOLD, candidate(text))
    assert (label.candidate_id, label.problem_id, label.verdict, label.reason) == ("c", "p", verdict, "seen")


def test_severity_violation_score_and_its_parts_are_kept():
    label = label_candidate(Checker(), PROBLEM, GOLD, candidate("part 0.75"))
    assert (label.severity, label.violation_score, label.parts) == (5, 0.5, {"budget": 0.75})


@pytest.mark.parametrize(
    ("failed", "gold", "reason"),
    [
        (candidate(None, error="HTTP 500"), GOLD, "no completion: HTTP 500"),
        (candidate("crash"), GOLD, "the checker of fake failed: RecursionError: too deep"),
        (candidate("yes"), None, "no reference answer for this problem"),
        (candidate("yes", problem_id="q"), GOLD, "ids differ: problem 'p', gold 'p', candidate 'q'"),
        (candidate("score 1.5"), GOLD, "the checker of fake gave violation score 1.5, which is not in [0, 1]"),
        (
            candidate("part -0.5"),
            GOLD,
            "the checker of fake gave part 'budget' of the violation score as -0.5, which is not in [0, 1]",
        ),
        (candidate(f"score {math.nan}"), GOLD, "the checker of fake gave violation score nan, which is not in [0, 1]"),
    ],
)
def test_what_could_not_be_checked_is_unlabeled_and_says_why(failed, gold, reason):
    label = label_candidate(Checker(), PROBLEM, gold, failed)
    assert (label.verdict, label.violation_score, label.reason) == (Verdict.UNLABELED, None, reason)
