"""Decisions about sums with reports, stored in a folder.

The policy selects by votes, and its confidence is the share of the candidates that give the answer.
"""

from datetime import UTC, datetime, timedelta

import pytest

from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy, policy_id
from raydebm.decision.sampling.checks import check_candidate
from raydebm.decisions.outcomes.log import ReportedOutcome, content_of
from raydebm.decisions.reader import DecisionReader
from raydebm.decisions.record import DecisionRecord, new_record_id
from raydebm.decisions.writer import DecisionWriter, RecordsArgs
from raydebm.records import Candidate, Decision, Energies, Outcome, PassRecord, Problem, ScoredCandidate
from raydebm.tasks import get_task

START = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
BY_SHARE = Posterior(weights={"votes": 1.0}, context_weights={"none": -30.0}, task="gsm8k", num_problems=80)
POLICY = Policy(max_passes=1, rule="posterior", posterior=BY_SHARE, tau_accept=0.6, tau_answer=0.6)
RIGHT, WRONG = "right", "wrong"


def record(index, share=10, *, policy=POLICY, problem=None, checkpoint="own", selected=2, task="gsm8k", accepted=None):
    """``share`` of ten candidates answer 2, the others 3; the answer given out is ``selected``."""
    problem = problem or Problem(task=task, problem_id=f"p{index}", prompt=f"What is {index}?")
    pool = []
    for place in range(10):
        candidate = Candidate(
            candidate_id=f"c{index}-{place}",
            task=problem.task,
            problem_id=problem.problem_id,
            generator="ada" if place % 2 else "bob",
            text=f"#### {2 if place < share else 3}",
            sample_index=place,
        )
        report = check_candidate(get_task("gsm8k"), problem, candidate)
        energies = Energies(candidate_id=candidate.candidate_id, members=(float(place), float(place)))
        pool.append(ScoredCandidate(candidate=candidate, report=report, energies=energies))
    best = next(scored for scored in pool if scored.report.vote_key == str(selected))
    accepted = share / 10 >= policy.tau_answer if accepted is None else accepted
    decision = Decision.ACCEPT if accepted else Decision.ABSTAIN
    passes = (
        PassRecord(
            pass_index=1, num_requested=10, num_failed=0, selected=best.candidate.candidate_id, sigma=0.0, penalty=0.0,
            decision=decision,
        ),
    )  # fmt: skip
    moment = START + timedelta(hours=index)
    return DecisionRecord(
        record_id=new_record_id(moment),
        time=moment,
        request_id=f"r{index}",
        outcome=Outcome(problem=problem, decision=decision, best=best, passes=passes, pool=tuple(pool), reason="."),
        policy=policy,
        seed=0,
        versions={"checkpoint": checkpoint},
    )


def reported(outcome_id, now, decision, said, by, answer):
    return ReportedOutcome(
        outcome_id=outcome_id, record_id=decision.record_id, correct=said == RIGHT, by=by,
        content=content_of(correct=said == RIGHT, answer=answer, note=None), task=decision.problem.task,
        policy_id=policy_id(decision.policy), decision=str(decision.outcome.decision), time=now, answer=answer,
        selected=decision.outcome.best.candidate.candidate_id,
    )  # fmt: skip


@pytest.fixture
def reader(tmp_path):
    """Stores (record, report) pairs; a report is None, right, wrong, or (right or wrong, by, correct answer)."""

    def store(pairs):
        root = str(tmp_path / "records")
        writer = DecisionWriter(root, RecordsArgs(max_days=None, max_waiting=10_000))
        for decision, _ in pairs:
            assert writer.put(decision)
        writer.close()
        made = DecisionReader(root)
        said = [(decision, (report, "ada", None) if isinstance(report, str) else report) for decision, report in pairs]
        said = [(decision, report) for decision, report in said if report is not None]
        ids, now = made.outcomes.new_ids(len(said))
        if said:
            made.outcomes.append(
                [reported(name, now, decision, *report) for name, (decision, report) in zip(ids, said, strict=True)]
            )
        return made

    return store
