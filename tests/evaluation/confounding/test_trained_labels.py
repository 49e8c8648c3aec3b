"""Where labels are violation scores, a confounding report counts as correct what the scorer was trained to prefer."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hand_made import table_of

from raydebm.config import ConfoundingConfig
from raydebm.decision.policy import Policy
from raydebm.pipeline.ray.confounding import _as_trained
from raydebm.pipeline.studies.confounding import screen_of

VIOLATIONS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
"""Of eight plans, none of which is without a violation; the first four are by ``z``, the others by ``a``."""


def plans(make_pool, prefix):
    """The energies are the violations."""
    rows = [
        (0, {"members": (violation,), "generator": "z" if violation < 0.45 else "a", "text": f"plan {violation}"})
        for violation in VIOLATIONS
    ]
    return table_of(make_pool(*rows, problem_id=f"{prefix}{index}-", violations=VIOLATIONS) for index in range(4))


def recipe_of(*, reasoning="answer"):
    return SimpleNamespace(
        scorer=SimpleNamespace(reasoning=reasoning),
        task=SimpleNamespace(name="travelplanner"),
        confounding=ConfoundingConfig(),
        seed=0,
    )


@pytest.fixture
def screened(make_pool):
    """The report of a run."""
    run = SimpleNamespace(needed_object=lambda *parts: Policy().to_json())
    return screen_of(
        SimpleNamespace(name="plans", run=run, recipe=recipe_of()), plans(make_pool, "t"), plans(make_pool, "v")
    )


def test_the_screen_is_by_the_share_that_training_prefers(screened):
    assert {row.generator: row.correct_share.value for row in screened.screen.generators} == {"z": 1.0, "a": 0.0}


def test_the_best_generator_is_the_one_that_training_prefers(screened):
    """By the strict verdicts both are right on nothing, and the first by name would be it."""
    assert screened.best_generator == "z"


def test_the_screen_finds_energies_that_know_no_more_than_the_preferred_quarter(screened):
    """Every pick is by ``z``, and so is every preferred candidate: no excess."""
    rows = {row.generator: row for row in screened.screen.generators}

    assert (rows["z"].pick_share.value, rows["z"].correct_share.value, rows["z"].excess.value) == (1.0, 1.0, 0.0)
    assert rows["z"].within_auroc.value == 1.0


def test_the_ablation_sees_the_same_labels(make_pool):
    pools = plans(make_pool, "t").of_pools([0])

    assert _as_trained(pools, recipe_of()).correct.tolist() == [1, 1, 0, 0, 0, 0, 0, 0]
    assert pools.correct.tolist() == [0] * 8


def test_the_ablation_reads_the_texts_that_the_scorer_reads(make_pool):
    pools = plans(make_pool, "t").of_pools([0])
    first = pools.candidates[0]
    thought = replace(first, candidate=replace(first.candidate, reasoning="Think."))
    pools = replace(pools, candidates=(thought, *pools.candidates[1:]))

    texts = {
        reasoning: _as_trained(pools, recipe_of(reasoning=reasoning)).candidates[0].candidate.text
        for reasoning in ("answer", "all")
    }

    assert texts == {"answer": "plan 0.1", "all": "Think.\n\nplan 0.1"}


def test_labels_without_a_violation_score_stay_as_they_are(make_pool):
    pools = table_of(make_pool((1, {"members": (0.0,)}), (0, {"members": (1.0,)})))

    assert _as_trained(pools, recipe_of()).correct.tolist() == [1, 0]
