"""Decisions about sums with reports, stored in a folder.

The policy selects by votes, and its confidence is the share of the candidates that give the answer.
"""

import pytest
from decisions_by_hand import report, stored_in, sums

from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy
from raydebm.records import Decision

BY_SHARE = Posterior(weights={"votes": 1.0}, context_weights={"none": -30.0}, task="gsm8k", num_problems=80)
POLICY = Policy(max_passes=1, rule="posterior", posterior=BY_SHARE, tau_accept=0.6, tau_answer=0.6)
RIGHT, WRONG = True, False
RECIPE = {
    "name": "sums",
    "task": {"name": "gsm8k"},
    "generators": [{"kind": "openai", "name": "ada", "model": "m", "base_url": "http://127.0.0.1:9/v1"}],
    "scorer": {"backbone": "embedded:encoder-mini"},
}


def record(index, share=10, *, policy=POLICY, checkpoint="own", selected=2, accepted=None, **more):
    """``share`` of ten candidates answer 2, the others 3; the answer given out is ``selected``. An hour apart."""
    accepted = share / 10 >= policy.tau_answer if accepted is None else accepted
    decision = Decision.ACCEPT if accepted else Decision.ABSTAIN
    numbers = ["2"] * share + ["3"] * (10 - share)
    best, versions = numbers.index(str(selected)), {"checkpoint": checkpoint}
    return sums(index, numbers, best=best, decision=decision, policy=policy, versions=versions, step_s=3600, **more)


@pytest.fixture
def reader(tmp_path):
    """Stores (record, report) pairs; a report is None, right, wrong, (right or wrong, by, correct answer), or a list of
    these."""

    def store(pairs):
        made = stored_in(tmp_path / "run" / "records", [decision for decision, _ in pairs])
        for decision, said in pairs:
            reports = said if isinstance(said, list) else [] if said is None else [said]
            for each in reports:
                correct, by, answer = each if isinstance(each, tuple) else (each, "ada", None)
                report(made.outcomes, decision, correct, by=by, answer=answer)
        return made

    return store
