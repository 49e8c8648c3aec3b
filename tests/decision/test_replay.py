import pytest

from raydebm.decision.policy import Policy
from raydebm.decision.replay import Recording, replay
from raydebm.decision.sampling.checks import check_candidate
from raydebm.records import Energies, GenerationRequest, Sampling, ScoredCandidate

POLICY = Policy(theta_sigma=0.8, theta_abstain=1.5, num_regenerate=2)


def requests_of(problem, pass_index, messages):
    return [
        GenerationRequest(
            task="toy",
            problem_id=problem.problem_id,
            generator="g",
            messages=messages,
            sampling=Sampling(),
            seed=sample,
            pass_index=pass_index,
            sample_index=sample,
        )
        for sample in range(2)
    ]


@pytest.fixture
def replayed(task, problem):
    def run(candidates, *, policy=POLICY, members=(0.0,)):
        scored = {
            c.candidate_id: ScoredCandidate(
                candidate=c,
                report=check_candidate(task, problem, c),
                energies=members and Energies(candidate_id=c.candidate_id, members=members),
            )
            for c in candidates
        }
        recorded = Recording(task, scored, requests_of=requests_of)
        (outcome,) = replay([problem], recorded, policy=policy)
        return outcome, recorded.missing

    return run


def test_replaying_and_generating_what_is_missing_completes_the_loop(replayed, make_candidate):
    first = [make_candidate("a", "41!2")]
    unfinished, missing = replayed(first)
    drawn = [make_candidate(request.candidate_id, "42", pass_index=2) for request in missing]

    outcome, still_missing = replayed([*first, *drawn])

    assert "2 of 2 candidates of pass 2 of problem 'p' are not recorded yet" in unfinished.reason
    assert [request.messages[-1]["content"].splitlines()[1] for request in missing] == ["- over the limit by 2"] * 2
    assert still_missing == []
    assert outcome.answer == "42"


def test_only_what_is_absent_is_missing(replayed, make_candidate):
    first = [make_candidate("a", "41!2")]
    _, (one, other) = replayed(first)

    _, missing = replayed([*first, make_candidate(one.candidate_id, "42", pass_index=2)])

    assert missing == [other]


def test_greedy_candidates_are_not_part_of_the_pool(replayed, make_candidate):
    greedy = make_candidate("b", "42", sampling=Sampling(temperature=0.0))

    outcome, _ = replayed([make_candidate("a", "41"), greedy])

    assert [scored.candidate.candidate_id for scored in outcome.pool] == ["a"]
