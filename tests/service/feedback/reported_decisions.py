"""Decisions about sums with reports, stored in a folder.

The policy selects by votes, and its confidence is the share of the candidates that give the answer.
"""

from datetime import UTC, datetime, timedelta

import pytest

from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy, policy_id
from raydebm.decision.sampling.checks import check_candidate
from raydebm.records import Candidate, Decision, Energies, Outcome, PassRecord, Problem, ScoredCandidate
from raydebm.service.store.outcomes import ReportedOutcome, content_of
from raydebm.service.store.reader import DecisionReader
from raydebm.service.store.record import DecisionRecord, new_record_id
from raydebm.service.store.writer import DecisionWriter, RecordsArgs
from raydebm.tasks import get_task

START = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
BY_SHARE = Posterior(weights={"votes": 1.0}, context_weights={"none": -30.0}, task="gsm8k", num_problems=80)
POLICY = Policy(max_passes=1, rule="posterior", posterior=BY_SHARE, tau_accept=0.6, tau_answer=0.6)
RIGHT, WRONG = "right", "wrong"


def record(index, share=10, *, policy=POLICY, problem=None, checkpoint="own", selected=2, task="gsm8k", accepted=None):
    """``share`` of ten candidates answer 2, the others 3; the answer given out is ``selected``."""
    problem = problem or Problem(task=task, problem_id=f"p{index}", prompt=f"What is {index}?")
    pool = tuple(_candidates(index, problem, 1, [2] * share + [3] * (10 - share)))
    best = _first_with(pool, selected)
    accepted = share / 10 >= policy.tau_answer if accepted is None else accepted
    decision = Decision.ACCEPT if accepted else Decision.ABSTAIN
    passes = (_pass(1, best, decision),)
    outcome = Outcome(problem=problem, decision=decision, best=best, passes=passes, pool=pool, reason=".")
    return _stored(index, outcome, policy, checkpoint)


def _candidates(index, problem, pass_index, answers):
    for place, answer in enumerate(answers):
        candidate = Candidate(
            candidate_id=f"c{index}-{place}" if pass_index == 1 else f"c{index}-{pass_index}-{place}",
            task=problem.task,
            problem_id=problem.problem_id,
            generator="ada" if place % 2 else "bob",
            text="No idea." if answer is None else f"#### {answer}",
            sample_index=place,
            pass_index=pass_index,
        )
        report = check_candidate(get_task("gsm8k"), problem, candidate)
        energies = Energies(candidate_id=candidate.candidate_id, members=(float(place), float(place)))
        yield ScoredCandidate(candidate=candidate, report=report, energies=energies)


def _first_with(pool, answer):
    return next(scored for scored in pool if scored.report.vote_key == str(answer))


def _pass(index, best, decision):
    selected = None if best is None else best.candidate.candidate_id
    return PassRecord(
        pass_index=index, num_requested=10, num_failed=0, selected=selected, sigma=0.0, penalty=0.0, decision=decision
    )


def _stored(index, outcome, policy, checkpoint):
    moment = START + timedelta(hours=index)
    return DecisionRecord(
        record_id=new_record_id(moment),
        time=moment,
        request_id=f"r{index}",
        outcome=outcome,
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
        writer = DecisionWriter(root, RecordsArgs(max_days=None))
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
