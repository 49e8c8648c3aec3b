import json
import math
import random
from dataclasses import replace

import pytest

from raydebm.config import DecisionConfig, parse_recipe
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.evidence.terms import Author, Reference
from raydebm.decision.policy import Policy, policy_of
from raydebm.decision.rules import decide, decide_by_confidence, decide_pool, select, signal_of
from raydebm.errors import ConfigError
from raydebm.records import Candidate, ConstraintReport, Decision, Energies, ScoredCandidate
from raydebm.tasks.base import TaskDefaults

POLICY = Policy(theta_sigma=0.8, theta_abstain=1.5)


def scored(candidate_id, members, penalty=0.0, *, pass_index=1):
    parsed = not math.isinf(penalty)
    return ScoredCandidate(
        candidate=Candidate(
            candidate_id=candidate_id, task="t", problem_id="p", generator="g", text="x", pass_index=pass_index
        ),
        report=ConstraintReport(
            candidate_id=candidate_id, answer="x" if parsed else None, vote_key="x" if parsed else None, penalty=penalty
        ),
        energies=None if members is None else Energies(candidate_id=candidate_id, members=members),
    )


@pytest.mark.parametrize(
    ("signal", "sigma", "penalty", "passes_left", "expected"),
    [
        (0.8, 0.8, 0.0, 1, Decision.ACCEPT),
        (0.81, 0.81, 0.0, 1, Decision.REGENERATE),
        (0.1, 0.1, 0.5, 1, Decision.REGENERATE),
        (9.0, 9.0, 0.0, 1, Decision.REGENERATE),
        (0.81, 0.81, 0.0, 0, Decision.ACCEPT),
        (1.5, 1.5, 0.0, 0, Decision.ACCEPT),
        (1.51, 1.51, 0.0, 0, Decision.ABSTAIN),
        (0.1, 0.1, 0.5, 0, Decision.ACCEPT),
        (2.0, 0.2, 0.0, 0, Decision.ACCEPT),
        (0.2, 2.0, 0.0, 0, Decision.ABSTAIN),
        (None, None, None, 1, Decision.REGENERATE),
        (None, None, None, 0, Decision.ABSTAIN),
        (0.3, None, None, 0, Decision.ABSTAIN),
    ],
    ids=[
        "at-theta-sigma",
        "above-theta-sigma",
        "violation-beats-low-sigma",
        "extreme-sigma-tries-again-first",
        "last-pass-between-the-thresholds",
        "last-pass-at-theta-abstain",
        "last-pass-above-theta-abstain",
        "last-pass-with-violation",
        "last-pass-looks-at-the-selected-not-the-pool",
        "low-pool-mean-does-not-excuse-the-selected",
        "nothing-scored-pass-left",
        "nothing-scored-last-pass",
        "nothing-parsed-last-pass",
    ],
)
def test_decide(signal, sigma, penalty, passes_left, expected):
    decision = decide(signal=signal, sigma=sigma, penalty=penalty, passes_left=passes_left, policy=POLICY)

    assert decision is expected


@pytest.mark.parametrize(
    ("sigma", "penalty", "passes_left", "expected"),
    [
        (0.8, 0.0, 1, Decision.ACCEPT),
        (0.81, 0.0, 1, Decision.REGENERATE),
        (1.5, 0.0, 1, Decision.REGENERATE),
        (1.51, 0.0, 1, Decision.ABSTAIN),
        (1.51, 0.5, 1, Decision.REGENERATE),
        (1.51, 0.5, 0, Decision.ABSTAIN),
        (0.1, 0.5, 1, Decision.REGENERATE),
        (1.5, 0.0, 0, Decision.ACCEPT),
        (None, None, 1, Decision.REGENERATE),
    ],
    ids=[
        "at-theta-sigma",
        "between-the-thresholds",
        "at-theta-abstain",
        "extreme-sigma-abstains-at-once",
        "extreme-sigma-with-violation-tries-again",
        "extreme-sigma-with-violation-last-pass",
        "low-sigma-with-violation",
        "last-pass-between-the-thresholds",
        "nothing-selected",
    ],
)
def test_the_gate_of_equation_3(sigma, penalty, passes_left, expected):
    policy = Policy(signal="equation", theta_sigma=0.8, theta_abstain=1.5)

    decision = decide(signal=sigma, sigma=sigma, penalty=penalty, passes_left=passes_left, policy=policy)

    assert decision is expected


def test_selection_minimises_mu_plus_lambda_times_penalty():
    pool = [scored("a", (1.0, 3.0), penalty=0.0), scored("b", (0.0, 0.0), penalty=0.9)]

    assert select(pool, 2.0).candidate.candidate_id == "b"  # 1.8 < 2.0
    assert select(pool, 3.0).candidate.candidate_id == "a"  # 2.7 > 2.0


def test_selection_skips_candidates_without_parse_or_energy():
    pool = [scored("a", (-9.0,), penalty=math.inf), scored("b", None), scored("c", (5.0,))]

    assert select(pool, 1.0).candidate.candidate_id == "c"


def test_lambda_zero_does_not_let_an_unparsed_candidate_in():
    assert select([scored("a", (-9.0,), penalty=math.inf)], 0.0) is None


def test_equal_energy_goes_to_lower_mu():
    pool = [scored("a", (1.0,), penalty=0.0), scored("b", (0.0,), penalty=1.0)]

    assert select(pool, 1.0).candidate.candidate_id == "b"


def test_full_tie_goes_to_the_earlier_pass_whatever_the_ids():
    pool = [scored("a", (1.0,), pass_index=2), scored("z", (1.0,), pass_index=1)]

    assert select(pool, 1.0).candidate.candidate_id == "z"


def test_order_of_the_pool_never_matters():
    pool = [scored(name, (1.0,)) for name in "dbca"]
    shuffled = [random.Random(seed).sample(pool, 4) for seed in range(20)]

    assert {select(order, 1.0).candidate.candidate_id for order in shuffled} == {"a"}


def test_pool_mean_counts_every_scored_candidate_also_unparsed_ones():
    pool = [scored("a", (0.0, 2.0)), scored("b", (0.0, 4.0), penalty=math.inf), scored("c", None)]

    assert signal_of(pool, pool[0], "pool_mean") == 1.5
    assert signal_of(pool, pool[0], "selected") == 1.0


def test_pool_mean_gates_and_the_selected_sigma_still_stops_the_answer():
    """Algorithm 1 checks sigma(y*) of every answer, also of one whose pool agreed on average."""
    pool = [scored("a", (-2.0, 2.0)), scored("b", (5.0, 5.0)), scored("c", (5.0, 5.0))]
    policy = Policy(signal="pool_mean", theta_sigma=0.8, theta_abstain=1.5)

    decided = decide_pool(pool, passes_left=1, policy=policy)

    assert decided.decision is Decision.ABSTAIN
    assert decided.signal == pytest.approx(2 / 3)


def test_the_reason_names_the_generators_from_which_nothing_came():
    lost = Candidate(candidate_id="c", task="t", problem_id="p", generator="slow", text=None, error="late")
    late = ScoredCandidate(candidate=lost, report=replace(scored("c", None).report, answer=None), energies=None)

    reason = decide_pool([scored("a", (0.1, 0.1)), late], passes_left=0, policy=POLICY).reason

    assert reason.endswith("; nothing came from slow")
    assert "nothing came" not in decide_pool([late], passes_left=0, policy=POLICY).reason


def test_reason_when_nothing_could_be_selected_counts_the_causes():
    pool = [scored("a", (0.0,), penalty=math.inf), scored("b", None), scored("c", None)]

    reason = decide_pool(pool, passes_left=0, policy=POLICY).reason

    assert reason == "no candidate can be selected: of 3, 1 did not parse, 2 could not be scored"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"theta_sigma": 1.5, "theta_abstain": 1.5}, "theta_sigma must be below theta_abstain, got 1.5 and 1.5"),
        ({"lambda_": -1.0}, r"lambda.*greater than or equal to 0 \(got -1\.0\)"),
        ({"signal": "best"}, r"signal: .*'selected', 'pool_mean' or 'equation' \(got 'best'\)"),
        ({"max_passes": 0}, r"max_passes: .*greater than or equal to 1 \(got 0\)"),
    ],
)
def test_policy_refuses_values_that_cannot_work(fields, message):
    with pytest.raises(ConfigError, match=message):
        Policy(**fields)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"theta": 1}, "unknown key.*theta; known: .*lambda.*"),
        ({"theta_sigma": "0.5"}, r"theta_sigma: .*valid number \(got '0\.5'\)"),
    ],
)
def test_policy_json_is_checked(value, message):
    with pytest.raises(ConfigError, match=message):
        Policy.from_json(value)


def test_lambda_comes_from_the_task_when_the_recipe_leaves_it_open():
    defaults = TaskDefaults(max_length=1, batch_size=1, patience=1, lambda_=2.0)

    assert policy_of(DecisionConfig(), defaults).lambda_ == 2.0
    assert policy_of(DecisionConfig.model_validate({"lambda": 0.5}), defaults).lambda_ == 0.5


# ---- the posterior's rule -------------------------------------------------------------------------------------------

GUARANTEE = {
    "max_error": 0.1,
    "confidence": 0.9,
    "certified": True,
    "problems": 500,
    "tau": 0.3,
    "thresholds": [0.8, 0.5, 0.3],
}
VOTES = Posterior(weights={"votes": 1.0}, context_weights={})
BY_VOTES = Policy(rule="posterior", posterior=VOTES, tau_accept=0.6, tau_answer=0.3, max_passes=2)
GUARANTEED = BY_VOTES.replaced(guarantee=GUARANTEE)


def answered(candidate_id, answer, members=None, *, proof=None, penalty=0.0):
    candidate = scored(candidate_id, members, penalty)
    report = replace(candidate.report, answer=answer, vote_key=answer, proof=proof)
    return replace(candidate, report=report)


@pytest.mark.parametrize(
    ("confidence", "passes_left", "expected"),
    [
        (0.6, 1, Decision.ACCEPT),
        (0.59, 1, Decision.REGENERATE),
        (0.0, 1, Decision.REGENERATE),
        (0.3, 0, Decision.ACCEPT),
        (0.29, 0, Decision.ABSTAIN),
        (1.0, 0, Decision.ACCEPT),
    ],
)
def test_decide_by_confidence(confidence, passes_left, expected):
    assert decide_by_confidence(confidence, passes_left=passes_left, policy=BY_VOTES) is expected


def test_the_posterior_decides_and_says_why():
    """Masses 2/3 and 1/3 beside 1 for none: p = 1/3."""
    pool = [answered("a", "A"), answered("b", "A"), answered("c", "B")]

    decided = decide_pool(pool, passes_left=0, policy=BY_VOTES)

    assert (decided.decision, decided.best) == (Decision.ACCEPT, pool[0])
    assert decided.confidence == pytest.approx(1 / 3)
    assert decided.reason == (
        "the answer is right with probability 0.333, at or above tau_answer 0.3; evidence (log-odds): for it share of "
        "candidates +0.35; against it log-odds of an average answer -1.04"
    )


def test_a_refusal_says_first_what_speaks_against_the_answer():
    pool = [answered("a", "A"), answered("b", "A"), answered("c", "B")]

    decided = decide_pool(pool, passes_left=0, policy=BY_VOTES.replaced(tau_answer=0.5))

    assert decided.reason == (
        "the answer is right with probability 0.333, below tau_answer 0.5; evidence (log-odds): against it log-odds of "
        "an average answer -1.04; for it share of candidates +0.35"
    )


@pytest.mark.parametrize("passes_left", [0, 1])
def test_a_proven_answer_is_accepted_at_once_whatever_the_thresholds(passes_left):
    pool = [answered("a", "A", proof=True), *(answered(f"b{index}", "B") for index in range(9))]

    decided = decide_pool(pool, passes_left=passes_left, policy=BY_VOTES.replaced(tau_accept=1.0, tau_answer=1.0))

    assert (decided.decision, decided.best, decided.confidence) == (Decision.ACCEPT, pool[0], 1.0)
    assert decided.reason == "an exact constraint proves the answer"


@pytest.mark.parametrize(("passes_left", "expected"), [(1, Decision.REGENERATE), (0, Decision.ABSTAIN)])
def test_refuted_answers_are_never_given_out(passes_left, expected):
    decided = decide_pool(
        [answered("a", "A", (0.0,), proof=False)],
        passes_left=passes_left,
        policy=BY_VOTES.replaced(tau_accept=0.0, tau_answer=0.0),
    )

    assert (decided.decision, decided.best, decided.confidence) == (expected, None, None)
    assert decided.reason == "every answer is refuted by an exact constraint"


def test_the_papers_rule_tells_the_confidence_of_its_selection_beside_a_posterior():
    pool = [answered("a", "A", (5.0, 5.0)), answered("b", "A", (5.0, 5.0)), answered("c", "B", (0.0, 0.0))]

    decided = decide_pool(pool, passes_left=0, policy=POLICY.replaced(posterior=VOTES))

    assert decided.best is pool[2]
    assert decided.confidence == pytest.approx(1 / 6)
    assert [belief.cluster.key for belief in decided.beliefs] == ["B", "A"]


def test_a_policy_with_posterior_and_guarantee_survives_json():
    posterior = Posterior(
        weights={"votes": 1.25},
        context_weights={"none": -0.5},
        reference=Reference(
            authors={"g": Author(skill=0.3, center=1.0, scale=2.0)},
            default=Author(skill=0.0, center=0.0, scale=1.0),
            lambda_=2.0,
        ),
        slope=0.8,
        num_problems=90,
        task="t",
    )
    policy = GUARANTEED.replaced(posterior=posterior, profile="vote")

    assert Policy.from_json(json.loads(json.dumps(policy.to_json()))) == policy


@pytest.mark.parametrize(
    ("policy", "changes"),
    [
        (GUARANTEED, {}),
        (GUARANTEED, {"tau_answer": 0.5}),
        (GUARANTEED.replaced(max_passes=1), {"tau_answer": 0.8}),
        (GUARANTEED.replaced(max_passes=1), {"tau_accept": 0.9}),
    ],
    ids=["nothing", "certified", "certified-above-tau-accept", "one-pass-ignores-tau-accept"],
)
def test_a_guarantee_survives_thresholds_that_it_was_certified_for(policy, changes):
    assert policy.changed(changes).guarantee == GUARANTEE


@pytest.mark.parametrize(
    "changes",
    [
        {"tau_answer": 0.4},
        {"tau_answer": 0.8},
        {"tau_accept": 0.4},
        {"tau_accept": 0.9},
        {"profile": "vote"},
        {"lambda": 3.0},
        {"budget": 4},
        {"posterior": Posterior(weights={"energy": 1.0}, context_weights={}).to_json()},
    ],
    ids=str,
)
def test_any_other_change_voids_the_guarantee_and_says_so(changes):
    guarantee = GUARANTEED.changed(changes).guarantee

    assert guarantee["certified"] is False
    assert next(iter(changes)) in guarantee["reason"]
    assert guarantee["max_error"] == 0.1


def test_with_waves_a_certified_threshold_must_leave_tau_accept_alone():
    waved = GUARANTEED.replaced(waves=(4,), max_passes=1)

    assert waved.changed({"tau_answer": 0.5}).guarantee["certified"] is True
    assert waved.changed({"tau_answer": 0.8}).guarantee["certified"] is False


def test_prices_are_written_where_there_are_any():
    assert "prices" not in BY_VOTES.to_json()
    assert BY_VOTES.replaced(prices={"g": 1.0}).to_json()["prices"] == {"g": 1.0}


def test_settings_are_keys_of_a_recipe_and_the_limits_that_are_set():
    assert GUARANTEED.replaced(budget=4, lambda_=2.0, prices={"g": 1.0}).settings() == {
        "rule": "posterior", "profile": "posterior", "lambda": 2.0, "signal": "selected", "theta_sigma": 0.8,
        "theta_abstain": 1.5, "tau_accept": 0.6, "tau_answer": 0.3, "tau_field": 0.9, "max_passes": 2,
        "num_regenerate": 8, "fresh_share": 0.0, "budget": 4,
    }  # fmt: skip


def test_the_posteriors_rule_needs_a_posterior():
    with pytest.raises(
        ConfigError, match=r"no posterior was fitted; run `raydebm calibrate`, or set decision\.rule: paper"
    ):
        Policy(rule="posterior")


# ---- waves -----------------------------------------------------------------------------------------------------------


def test_no_sizes_mean_the_whole_pass_at_once():
    assert Policy(waves=(4,)).changed({"waves": []}).waves is None


def test_a_recipes_prices_and_waves_become_the_policys():
    endpoint = {"kind": "openai", "model": "m"}
    recipe = parse_recipe(
        {
            "name": "r",
            "task": {"name": "gsm8k"},
            "generators": [
                {**endpoint, "name": "priced", "usd_per_million_tokens": (1.0, 2.0)},
                {**endpoint, "name": "unknown"},
                {"kind": "transformers", "name": "own", "model": "m"},
            ],
            "decision": {"waves": [4, 8]},
        }
    )

    policy = policy_of(recipe.decision, TaskDefaults(max_length=64, batch_size=1, patience=1), recipe.generators)

    assert (policy.waves, policy.prices) == ((4, 8), {"priced": 2.0, "own": 0.0})
