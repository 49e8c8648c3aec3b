"""Selectors on columns of all pools against their definitions, written out in plain Python for one pool at a time."""

import math
from collections import Counter

import pytest
from hand_made import table_of
from hypothesis import given
from hypothesis import strategies as st

from raydebm.decision.table import correct_of
from raydebm.evaluation.selectors import standard_selectors, values_of

ENERGIES = st.sampled_from([-1.0, 0.0, 0.5, 2.0])
ROWS = st.tuples(
    st.sampled_from([1, 0, None]),
    st.fixed_dictionaries(
        {
            "members": st.none() | st.tuples(ENERGIES),
            "penalty": st.sampled_from([0.0, 0.5, math.inf]),
            "key": st.sampled_from("xyz"),
            "text": st.sampled_from(["a", "bb", "ccc"]),
        }
    ),
)
POOLS = st.lists(st.lists(ROWS, max_size=5), min_size=1, max_size=4)


def shared(pool, chosen):
    return [float(row in chosen) / len(chosen) if chosen else 0.0 for row in range(len(pool.candidates))]


def energy_of(scored):
    mu = math.inf if scored.energies is None else scored.energies.mu
    return mu + scored.report.penalty


def voted(pool, votes):
    """An answer's votes add up; those with most share the chance, and their labelled candidates share it further."""
    totals = Counter()
    for scored, weight in zip(pool.candidates, votes, strict=True):
        if scored.report.vote_key is not None:
            totals[scored.report.vote_key] += weight
    top = max(totals.values(), default=0.0)
    winners = [key for key, total in totals.items() if total > 0 and math.isclose(total, top, rel_tol=1e-12)]
    weights = [0.0] * len(pool.candidates)
    for winner in winners:
        rows = [row for row, scored in enumerate(pool.candidates) if scored.report.vote_key == winner]
        labelled = [row for row in rows if is_labelled(pool, row)] or rows
        for row in labelled:
            weights[row] = 1 / len(winners) / len(labelled)
    return weights


def labels_of(pool):
    return [correct_of(pool.labels[scored.candidate.candidate_id]) for scored in pool.candidates]


def is_labelled(pool, row):
    return not math.isnan(labels_of(pool)[row])


def majority(pool):
    return voted(pool, [1.0] * len(pool.candidates))


def shortest(pool):
    lengths = [len(scored.candidate.text) for scored in pool.candidates]
    return shared(pool, [row for row, length in enumerate(lengths) if length == min(lengths)])


def lowest_energy(pool):
    ranks = [
        (energy_of(s), math.inf if s.energies is None else s.energies.mu, row) for row, s in enumerate(pool.candidates)
    ]
    return shared(pool, [min(ranks)[2]] if ranks and min(ranks)[0] < math.inf else [])


def weighted(pool):
    return voted(pool, [math.exp(-energy_of(scored)) for scored in pool.candidates])


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("majority vote", majority),
        ("shortest", shortest),
        ("energy-weighted vote", weighted),
        ("energy (paper)", lowest_energy),
    ],
)
@given(rows=POOLS)
def test_a_standard_selector_is_its_definition(make_pool, name, rule, rows):
    pools = made(make_pool, rows)
    table = table_of(pools)
    selectors = {selector.name: selector for selector in standard_selectors(table, lambda_=1.0)}
    if name in selectors:
        _, weights = selectors[name].choices(table)
        assert weights.tolist() == pytest.approx([chance for pool in pools for chance in rule(pool)])


@given(rows=POOLS)
def test_a_value_is_the_mean_label_of_the_chosen_by_their_chance(make_pool, rows):
    pools = made(make_pool, rows)
    table = table_of(pools)
    vote = next(selector for selector in standard_selectors(table, lambda_=1.0) if selector.name == "majority vote")

    values = values_of(vote, table).correct.tolist()

    assert values == [pytest.approx(worth(pool, majority(pool)), nan_ok=True) for pool in pools]


def worth(pool, weights):
    labels = labels_of(pool)
    known = [(weight, label) for weight, label in zip(weights, labels, strict=True) if not math.isnan(label)]
    if not sum(weights):
        return 0.0 if known else math.nan
    mass = sum(weight for weight, _ in known)
    return sum(weight * label for weight, label in known) / mass if mass else math.nan


def made(make_pool, rows):
    return [make_pool(*pool, problem_id=f"p{index}") for index, pool in enumerate(rows)]
