"""Many pools at once are decided as each is alone."""

from dataclasses import replace

import pytest
from decision_pools import scored, synthetic_problems

from raydebm.decision.batch import decide_pools
from raydebm.decision.evidence.fitting import fit_posterior
from raydebm.decision.evidence.posterior import special_case
from raydebm.decision.evidence.profiles import PROFILES
from raydebm.decision.policy import Policy
from raydebm.decision.rules import decide_pool, final_decision
from raydebm.records import Decision

PROBLEMS = synthetic_problems(12, seed=4)
POSTERIOR = replace(fit_posterior(PROBLEMS, lambda_=1.0), slope=0.8, offset=0.1)
POOLS = [
    *(pool.candidates for pool in PROBLEMS),
    [],
    [scored("u", None)],
    [scored("f", "A", (0.1, 0.2), proof=False)],
    [scored("f", "A", (0.1, 0.2), proof=True), scored("g", "B", (-3.0, -2.0))],
    [scored("n", "A"), scored("m", "B", (0.5, 0.1)), scored("o", "B", penalty=0.5)],
    [scored("x", "A", (0.0, 0.0)), scored("y", "B", (0.0, 0.0))],
]


@pytest.mark.parametrize(
    "policy",
    [
        Policy(),
        Policy(posterior=POSTERIOR),
        Policy(posterior=POSTERIOR, signal="pool_mean", theta_sigma=0.2),
        Policy(rule="posterior", posterior=special_case("votes"), tau_accept=0.4, tau_answer=0.3),
        *(Policy(rule="posterior", posterior=POSTERIOR, profile=profile) for profile in PROFILES),
    ],
    ids=["paper", "paper with confidence", "pool mean", "votes", *PROFILES],
)
@pytest.mark.parametrize("passes_left", [0, 1])
def test_decisions_about_many_pools_are_those_about_each(policy, passes_left):
    together = decide_pools(POOLS, passes_left=[passes_left] * len(POOLS), policy=policy)

    for pool, decided in zip(POOLS, together, strict=True):
        alone = decide_pool(pool, passes_left=passes_left, policy=policy)
        assert (decided.decision, decided.best, decided.signal, decided.penalty) == (
            alone.decision,
            alone.best,
            alone.signal,
            alone.penalty,
        )
        assert (decided.confidence is None) == (alone.confidence is None)
        assert decided.confidence is None or decided.confidence == pytest.approx(alone.confidence, rel=1e-9)
        assert decided.reason.partition("evidence")[0] == alone.reason.partition("evidence")[0]


@pytest.mark.parametrize("policy", [Policy(), Policy(rule="posterior", posterior=POSTERIOR, tau_accept=0.7)])
def test_a_decision_without_further_passes_needs_no_second_look(policy):
    decided = []
    for pool in POOLS:
        decided.append(final_decision(decide_pool(pool, passes_left=1, policy=policy), policy))
        assert decided[-1] is decide_pool(pool, passes_left=0, policy=policy).decision
    assert {*decided} == {Decision.ACCEPT, Decision.ABSTAIN}


def test_passes_left_are_by_pool():
    policy = Policy(rule="posterior", posterior=special_case("votes"), tau_accept=0.9, tau_answer=0.2)
    pool = [scored("a", "A"), scored("b", "B")]

    decisions = decide_pools([pool, pool], passes_left=[1, 0], policy=policy)

    assert [decided.decision for decided in decisions] == [Decision.REGENERATE, Decision.ACCEPT]
