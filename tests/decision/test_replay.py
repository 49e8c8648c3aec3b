import pytest

from raydebm.decision.policy import Policy
from raydebm.decision.replay import RecordedChecker, RecordedScorer, ReplaySource, replay
from raydebm.decision.sampling.checks import check_candidate
from raydebm.decision.sampling.one_pass import Parts
from raydebm.errors import PoolError
from raydebm.records import Energies, GenerationRequest, Sampling

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
    def run(candidates, *, requests_of=requests_of, policy=POLICY):
        source = ReplaySource({c.candidate_id: c for c in candidates}, requests_of=requests_of)
        checker = RecordedChecker({c.candidate_id: check_candidate(task, problem, c) for c in candidates})
        scorer = RecordedScorer(
            {c.candidate_id: Energies(candidate_id=c.candidate_id, members=(0.0,)) for c in candidates}
        )
        (outcome,) = replay(
            [problem], parts=Parts(task=task, source=source, checker=checker, scorer=scorer), policy=policy
        )
        return outcome, source.missing

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


def test_a_candidate_that_was_never_checked_is_an_error(task, problem, make_candidate):
    with pytest.raises(PoolError, match="1 candidates of problem 'p' have no constraint report, the first is 'a'"):
        replay(
            [problem],
            parts=Parts(
                task=task,
                source=ReplaySource({"a": make_candidate("a", "41")}),
                checker=RecordedChecker({}),
                scorer=RecordedScorer({}),
            ),
            policy=POLICY,
        )


def test_a_candidate_without_recorded_energies_could_not_be_scored(task, problem, make_candidate):
    candidate = make_candidate("a", "41")

    (outcome,) = replay(
        [problem],
        parts=Parts(
            task=task,
            source=ReplaySource({"a": candidate}),
            checker=RecordedChecker({"a": check_candidate(task, problem, candidate)}),
            scorer=RecordedScorer({}),
        ),
        policy=Policy(max_passes=1),
    )

    assert outcome.reason == "no candidate can be selected: of 1, 1 could not be scored"
