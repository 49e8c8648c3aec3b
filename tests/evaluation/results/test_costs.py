"""What every selector costs, on pools whose prices can be added in the head."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hand_made import evaluated, table_of

from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.evidence.terms import PLAIN, Author
from raydebm.decision.policy import Policy
from raydebm.evaluation.certainty.confidence import Decided
from raydebm.evaluation.report.evaluation_tables import cost_table
from raydebm.evaluation.results.evaluation import selectors_of
from raydebm.evaluation.selectors import values_of
from raydebm.generators.tally import SavedSamples


def costs(pools, **inputs):
    return {row.name: row for row in evaluated(pools, **{"adapters": ("a0", "a1")} | inputs).costs}


def decided_costs(pools, profile, weights, **inputs):
    policy = Policy(rule="posterior", profile=profile, posterior=Posterior(weights=weights, context_weights={}))
    return costs(pools, policy=policy, decided=Decided.of(table_of(pools), policy), **inputs)


@pytest.fixture
def pools(make_pool):
    """Two problems: g's candidate costs 1 cent and is wrong, h's costs 3 cents and is right; mu knows it."""
    return [
        make_pool(
            (0, {"generator": "g", "members": (1.0, 1.0), "cost_usd": 0.01, "key": "x"}),
            (1, {"generator": "h", "members": (0.0, 0.0), "cost_usd": 0.03, "key": "y"}),
            problem_id=name,
            scores={"judge": [1.0, 9.0]},
        )
        for name in "pq"
    ]


@pytest.mark.parametrize(
    ("name", "usd", "num_candidates", "num_scores"),
    [
        ("random", 0.02, 1, 0),
        ("generator g", 0.01, 1, 0),
        ("generator h", 0.03, 1, 0),
        ("majority vote", 0.04, 2, 0),
        ("constraint only", 0.04, 2, 0),
        ("energy (paper)", 0.04, 2, 2),
        ("mu only", 0.04, 2, 2),
        ("adapter a0", 0.04, 2, 2),
        ("judge", 0.24, 2, 2),
        ("oracle", 0.04, 2, 0),
    ],
)
def test_what_a_selector_costs_per_problem(pools, name, usd, num_candidates, num_scores):
    rows = costs(pools, judge_usd={"judge": 0.1})

    assert rows[name].usd.value == pytest.approx(usd)
    assert (rows[name].num_candidates, rows[name].num_scores) == (num_candidates, num_scores)


@pytest.mark.parametrize("profile", ["energy", "posterior"])
@pytest.mark.parametrize("name", ["posterior", "chosen profile"])
def test_what_the_posterior_decides_pays_for_energies(pools, profile, name):
    row = decided_costs(pools, profile, {"energy": 1.0})[name]

    assert (row.usd.value, row.num_scores) == (pytest.approx(0.04), 2)


@pytest.mark.parametrize(
    ("weights", "usd", "num_scores"),
    [
        ({"score:judge": 1.0}, 0.24, 4),
        ({"score:judge": 1.0, "score:own_logprob": 1.0}, 0.24, 4),
        ({"score:judge": 0.0, "votes": 1.0}, 0.04, 2),
    ],
    ids=["judge", "own log-probability is free", "no weight"],
)
def test_the_posterior_pays_for_the_scorers_that_are_its_evidence(pools, weights, usd, num_scores):
    row = decided_costs(pools, "posterior", weights, judge_usd={"judge": 0.1})["posterior"]

    assert (row.usd.value, row.num_scores) == (pytest.approx(usd), num_scores)


def test_the_best_generator_is_the_profile_best_author(pools):
    """By skill it is g, whose candidate is wrong; where g's answer is refuted it is h's."""
    pools[1] = replace(
        pools[1],
        candidates=tuple(
            replace(scored, report=replace(scored.report, proof=False if place == 0 else None))
            for place, scored in enumerate(pools[1].candidates)
        ),
    )
    authors = {name: Author(skill=skill, center=0.0, scale=1.0) for name, skill in (("g", 1.0), ("h", 0.0))}
    posterior = Posterior(weights={"votes": 1.0}, context_weights={}, reference=replace(PLAIN, authors=authors))
    decided = Decided.of(table_of(pools), Policy(rule="posterior", profile="best_author", posterior=posterior))
    pools = table_of(pools)

    selectors = selectors_of(pools, lambda_=1.0, adapters=("a0", "a1"), validation=pools, decided=decided)

    best, chosen = (next(one for one in selectors if one.name == name) for name in ("best generator", "chosen profile"))
    assert best.weights(pools).tolist() == chosen.weights(pools).tolist()
    assert values_of(best, pools).correct.tolist() == [0.0, 1.0]


def test_signals_of_one_reading_are_paid_for_once(make_pool):
    signals = {"reader": [1.0, 2.0], "reader.worst": [1.0, 2.0], "v1.5": [1.0, 2.0]}
    pools = [make_pool((1, {"cost_usd": 0.0, "key": "x"}), (0, {"cost_usd": 0.0, "key": "y"}), scores=signals)]
    weights = {"score:reader": 1.0, "score:reader.worst": 1.0, "score:v1.5": 1.0}

    rows = decided_costs(pools, "posterior", weights, judge_usd={"reader": 0.25, "v1.5": 2.0})

    assert (rows["posterior"].usd.value, rows["posterior"].num_scores) == (pytest.approx(4.5), 4)
    assert (rows["reader.worst"].usd.value, rows["reader.worst"].num_scores) == (pytest.approx(0.5), 2)


def test_the_posterior_of_pools_without_energies_pays_for_none(make_pool):
    pools = table_of(make_pool((1, {"cost_usd": 0.01, "key": "x"}), (0, {"cost_usd": 0.03, "key": "y"})))
    row = decided_costs(pools, "posterior", {"votes": 1.0}, adapters=())["posterior"]

    assert (row.usd.value, row.num_scores) == (pytest.approx(0.04), 0)


def varied_pools(make_pool, rng):
    """Energies and the judge know a little about the truth."""
    pools = []
    for index in range(20):
        correct = [rng.randrange(2) for _ in range(8)]
        rows = [
            (
                label,
                {
                    "members": tuple(rng.gauss(-label, 0.7) for _ in range(2)),
                    "penalty": rng.choice([0.0, 0.0, 1.0]),
                    "key": "right" if label else rng.choice(["wrong", "other"]),
                    "generator": rng.choice("gh"),
                    "text": "t" * rng.randint(1, 50),
                },
            )
            for label in correct
        ]
        judged = [rng.gauss(label, 1.0) for label in correct]
        pools.append(make_pool(*rows, problem_id=f"p{index:02d}-", scores={"judge": judged}))
    return pools


def test_every_selector_says_whether_it_reads_energies_and_which_scores(make_pool):
    """What changes when energies or the judge's scores are turned round reads them."""
    pools = table_of(varied_pools(make_pool, random.Random(0)))
    turned = {
        "energies": replace(pools, members=-pools.members),
        "judge": replace(pools, scores={"judge": -pools.scores["judge"]}),
    }

    for selector in selectors_of(pools, lambda_=1.0, adapters=("a0", "a1"), validation=pools):
        weights = selector.weights(pools)
        read = {name for name, other in turned.items() if not np.allclose(selector.weights(other), weights)}
        assert read == ({"energies"} if selector.energies else set()) | set(selector.scores), selector.name


def test_an_unknown_cost_is_not_0(unpriced):
    rows = costs(unpriced)

    assert (rows["majority vote"].usd.value, rows["energy (paper)"].usd.value) == (None, None)


def test_the_front_is_what_nobody_beats_in_both(pools):
    """g, the first of each pool: cheapest, 0 % right. h: 3 cents, 100 %; who else is always right costs more. Random
    choice is between them."""
    rows = costs(pools, judge_usd={"judge": 0.1})

    assert {name for name, row in rows.items() if row.is_on_front} == {"first", "generator g", "random", "generator h"}


@pytest.fixture
def unpriced(make_pool):
    """Nobody knows what anything costs. mu is right twice, generator h in three of its four candidates, and g never."""
    g, h = {"generator": "g", "key": "x"}, {"generator": "h", "key": "y"}
    return [
        make_pool((0, {**g, "members": (1.0, 1.0)}), (1, {**h, "members": (0.0, 0.0)}), problem_id="p"),
        make_pool(
            (0, {**g, "members": (1.0, 1.0)}),
            (0, {**h, "members": (0.5, 0.5)}),
            (1, {**h, "members": (0.0, 0.0)}),
            problem_id="q",
        ),
    ]


def test_without_any_price_cheap_is_what_asks_for_little(unpriced):
    """h's: one request, 75 % right. By energies: all requests and a score of each, 100 %."""
    rows = costs(unpriced)

    front = {name for name, row in rows.items() if row.is_on_front}
    assert front >= {"generator h", "energy (paper)", "mu only"}
    assert not front & {"random", "first", "generator g", "majority vote", "constraint only", "oracle"}


def test_one_problem_without_a_price_leaves_the_selector_without_one(make_pool):
    pools = [make_pool((1, {"cost_usd": 0.1}), problem_id="p"), make_pool((1, {}), problem_id="q")]

    rows = costs(pools)

    assert rows["random"].usd.value is None


def test_a_failed_request_is_paid_for_by_those_who_asked_for_the_pool(make_pool):
    failed = (None, {"text": None, "cost_usd": 0.2})
    pools = [make_pool((1, {"cost_usd": 0.1}), failed)]

    rows = costs(pools)

    assert rows["random"].usd.value == pytest.approx(0.1)
    assert (rows["majority vote"].usd.value, rows["majority vote"].num_candidates) == (pytest.approx(0.3), 2)


def test_the_table_says_what_waves_saved(pools):
    evaluation = evaluated(pools)
    saved = SavedSamples(
        num_problems=1200, num_settled=900, num_samples=4000, sample_share=0.4, completion_tokens=9, token_share=0.254
    )
    caption = cost_table(replace(evaluation, saved=saved)).caption

    assert "ended 900 of 1,200 problems early" in caption
    assert "4,000 candidates (40 %) were never sampled, which saved about 25 % of the completion tokens" in caption
    unknown = replace(saved, completion_tokens=None, token_share=None)
    assert "an unknown share of the completion" in cost_table(replace(evaluation, saved=unknown)).caption
    assert "waves" not in cost_table(evaluation).caption
