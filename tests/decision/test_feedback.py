import math

from raydebm.decision.feedback import exemplar, feedback_messages
from raydebm.decision.sampling.checks import check_candidate
from raydebm.records import ConstraintReport, Energies, ScoredCandidate


def scored(task, problem, candidate, mu=0.0):
    return ScoredCandidate(
        candidate=candidate,
        report=check_candidate(task, problem, candidate),
        energies=Energies(candidate_id=candidate.candidate_id, members=(mu,)),
    )


def test_violations_are_quoted_after_the_rendered_answer(task, problem, make_candidate):
    best = scored(task, problem, make_candidate("c", "41!2.50"))

    assert feedback_messages(task, problem, best) == (
        {"role": "user", "content": "6 x 7?"},
        {"role": "assistant", "content": "41!2.5"},
        {
            "role": "user",
            "content": "Your answer breaks these rules:\n- over the limit by 2.5\n"
            "Find an answer that breaks none of them. Use the same output format.",
        },
    )


def test_an_uncertain_answer_gets_quality_feedback(task, problem, make_candidate):
    *_, last = feedback_messages(task, problem, scored(task, problem, make_candidate("c", "41")))

    assert last["content"] == (
        "Your answer may be wrong. Check each step again, then give your final answer in the same output format."
    )


def test_an_answer_to_check_again_is_quoted_with_its_steps(task, problem, make_candidate):
    text = "41!0." + "0" * 8000

    _, shown, _ = feedback_messages(task, problem, scored(task, problem, make_candidate("c", text)))

    assert shown == {"role": "assistant", "content": "0" * 8000}  # its end; rendered it would be 41


def test_a_reply_without_answer_is_quoted_by_its_end(task, problem, make_candidate):
    text = "start" + "x" * 600

    _, shown, last = feedback_messages(task, problem, scored(task, problem, make_candidate("c", text)))

    assert shown["content"] == "x" * 600
    assert last["content"] == (
        "Your reply had no answer in the requested output format. Give your final answer in that format."
    )


def test_exemplar_is_the_unparsed_reply_with_the_lowest_mu(task, problem, make_candidate):
    pool = [
        scored(task, problem, make_candidate("a", "hm"), mu=2.0),
        scored(task, problem, make_candidate("b", "oh"), mu=1.0),
        ScoredCandidate(
            candidate=make_candidate("c", None),
            report=ConstraintReport(candidate_id="c", answer=None, vote_key=None, penalty=math.inf),
            energies=None,
        ),
    ]

    assert exemplar(pool).candidate.candidate_id == "b"
