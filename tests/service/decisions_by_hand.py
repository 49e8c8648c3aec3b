"""Stored decisions, reports about them, and keys, for tests of what is stored and who may see it."""

import hashlib
import math
from datetime import UTC, datetime, timedelta

from raydebm.decision.policy import Policy, policy_id
from raydebm.decision.sampling.checks import check_candidate
from raydebm.records import (
    Candidate,
    ConstraintReport,
    Decision,
    Energies,
    Outcome,
    PassRecord,
    Problem,
    ScoredCandidate,
    Violation,
)
from raydebm.service.access import ApiKey, Keyring
from raydebm.service.store.outcomes import ReportedOutcome, content_of
from raydebm.service.store.reader import DecisionReader
from raydebm.service.store.record import DecisionRecord, DecisionWriter, RecordsArgs, new_record_id
from raydebm.tasks import get_task

START = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
ONE_PASS = Policy(max_passes=1)


def scored(name, mu, sigma, *, generator="ada", key="42", penalty=0.0, text=None):
    """A candidate whose two adapters say mu - sigma and mu + sigma; with an infinite penalty it has no answer."""
    candidate = Candidate(
        candidate_id=name,
        task="t",
        problem_id="p",
        generator=generator,
        text=text or f"text of {name}",
        prompt_tokens=10,
        cost_usd=0.25,
    )
    violation = Violation(constraint="limit", penalty=penalty, weight=1.0, message="over the limit")
    broken = (violation,) if 0 < penalty < math.inf else ()
    answer = None if math.isinf(penalty) else key
    report = ConstraintReport(candidate_id=name, answer=answer, vote_key=answer, penalty=penalty, violations=broken)
    energies = Energies(candidate_id=name, members=(mu - sigma, mu + sigma))
    return ScoredCandidate(candidate=candidate, report=report, energies=energies)


def record(
    index,
    *pool,
    decision=Decision.ACCEPT,
    task="t",
    prompt="6 x 7?",
    problem=None,
    best=0,
    policy=ONE_PASS,
    step_s=1,
    **more,
):
    """A decision of one pass, made ``index`` steps after START, that selects candidate ``best``."""
    chosen = None if best is None else pool[best]
    passes = (
        PassRecord(
            pass_index=1,
            num_requested=len(pool),
            num_failed=0,
            selected=None if chosen is None else chosen.candidate.candidate_id,
            sigma=None if chosen is None else chosen.energies.sigma,
            penalty=None if chosen is None else chosen.report.penalty,
            decision=decision,
        ),
    )
    problem = problem or Problem(task=task, problem_id=f"p{index}", prompt=prompt, data={"numbers": [6, 7]})
    moment = START + timedelta(seconds=index * step_s)
    return DecisionRecord(
        record_id=new_record_id(moment),
        time=moment,
        request_id=f"r{index}",
        outcome=Outcome(problem=problem, decision=decision, best=chosen, passes=passes, pool=pool, reason="as it was"),
        policy=policy,
        seed=3,
        latency_ms=100.0 * (index + 1),
        **{"request": {"num_samples": 2}, "versions": {"policy": "abc"}, "stages_ms": {"score": 12.5}, **more},
    )


def sums(index, numbers, *, task="gsm8k", problem=None, **more):
    """A decision about a sum; candidate i answers ``numbers[i]``, None cannot be read."""
    problem = problem or Problem(task=task, problem_id=f"p{index}", prompt=f"What is {index} plus 2?")
    pool = []
    for place, number in enumerate(numbers):
        candidate = Candidate(
            candidate_id=f"c{index}-{place}",
            task=problem.task,
            problem_id=problem.problem_id,
            generator="ada" if place % 2 else "bob",
            text="I do not know." if number is None else f"It is so. #### {number}",
            sample_index=place,
        )
        report = check_candidate(get_task("gsm8k"), problem, candidate)
        energies = Energies(candidate_id=candidate.candidate_id, members=(float(place), float(place)))
        pool.append(ScoredCandidate(candidate=candidate, report=report, energies=energies))
    return record(index, *pool, problem=problem, **more)


def stored_in(folder, records):
    """Writes decisions; returns the folder's reader."""
    writer = DecisionWriter(str(folder), RecordsArgs(max_days=None), flush_s=3600, clock=START.timestamp)
    for each in records:
        assert writer.put(each)
    writer.close()
    return DecisionReader(str(folder))


def report(log, about, correct, *, by="ada", answer=None, **changes):
    """Appends one report, by the log's clock, about a decision or a record id."""
    (outcome_id,), now = log.new_ids(1)
    facts = {"task": "t", "policy_id": "p", "decision": "accept", "record_id": about}
    if isinstance(about, DecisionRecord):
        best = about.outcome.best
        facts = {
            "task": about.problem.task,
            "policy_id": policy_id(about.policy),
            "decision": str(about.outcome.decision),
            "record_id": about.record_id,
            "selected": None if best is None else best.candidate.candidate_id,
        }
    content = content_of(correct=correct, answer=answer, note=None, fields=changes.get("fields", {}))
    told = {"correct": correct, "by": by, "answer": answer, "content": content, "time": now}
    outcome = ReportedOutcome(outcome_id=outcome_id, **facts | told | changes)
    log.append([outcome])
    return outcome


def key_of(name):
    return hashlib.sha256(name.encode()).hexdigest()


def bearer(name):
    """The headers of a request with this key; none without a name."""
    return {} if name is None else {"Authorization": f"Bearer {key_of(name)}"}


def keyring(*names, **rights):
    """A key for each name; of some with rights or limits."""
    given = {**{name: {} for name in names}, **rights}
    hashes = {name: hashlib.sha256(key_of(name).encode()).hexdigest() for name in given}
    return Keyring([ApiKey(name=name, sha256=hashes[name], **own) for name, own in given.items()])
