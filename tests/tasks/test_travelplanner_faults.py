"""Seeded faults, one at a time in a plan without fault: each is found by its dimension, and named."""

from collections.abc import Callable
from typing import Any

import pytest
from travelplanner_world import COST, good_plan, plan_view

from raydebm.tasks.travelplanner.dimensions import dimension_findings, dimension_values

Plan = list[dict[str, Any]]
Fault = Callable[[Plan], Any]


def findings(plan: Plan, **changes: Any) -> dict[str, list[str]]:
    """The sentences of each dimension."""
    by_dimension = dimension_findings(plan_view(plan, **changes))
    return {name: [f.message.format_map(f.values) for f in items] for name, items in by_dimension.items()}


def values(plan: Plan, **changes: Any) -> dict[str, float]:
    return dimension_values(dimension_findings(plan_view(plan, **changes)))


def put(day: int, field: str, value: str) -> Fault:
    return lambda plan: plan[day - 1].__setitem__(field, value)


def drop(day: int, field: str) -> Fault:
    return lambda plan: plan[day - 1].pop(field)


def remove_day(day: int) -> Fault:
    return lambda plan: plan.pop(day - 1)


def both(*faults: Fault) -> Fault:
    return lambda plan: [fault(plan) for fault in faults]


def stay(day: int, name: str) -> Fault:
    return put(day, "accommodation", name)


FAULTS = [
    # what costs too much
    ("expensive stay", both(stay(1, "Bree Tower, Bree"), stay(2, "Bree Tower, Bree")), "budget", "$1,600 of $1,000"),
    # ways that do not exist
    (
        "invented flight number",
        put(1, "transportation", "Flight Number: F9999999, from Ada to Bree"),
        "connectivity",
        "day 1: no valid transport from Ada to Bree: there is no flight F9999999 between them",
    ),
    (
        "flight of another day",
        put(1, "transportation", "Flight Number: F1000009, from Ada to Bree"),
        "connectivity",
        "flight F1000009 flies on 2022-03-02, not on 2022-03-01",
    ),
    ("flight without number", put(1, "transportation", "Flight, from Ada to Bree"), "connectivity", "no flight number"),
    (
        "train",
        put(3, "transportation", "Train, from Bree to Cole"),
        "connectivity",
        "Train, from Bree to Cole is neither a flight",
    ),
    (
        "no drive between them",
        both(put(3, "current_city", "from Bree to Dell"), put(3, "transportation", "Taxi, from Bree to Dell")),
        "connectivity",
        "there is no taxi between them",
    ),
    (
        "travel day without transport",
        put(3, "transportation", "-"),
        "connectivity",
        "day 3: no valid transport from Bree to Cole: no transportation is given",
    ),
    (
        "jump between cities",
        both(put(3, "current_city", "Cole"), put(3, "transportation", "-")),
        "connectivity",
        "from Bree to Cole",
    ),
    # what is missing
    ("no dinner field", drop(2, "dinner"), "completeness", "day 2: dinner missing"),
    ("no transport field", drop(5, "transportation"), "completeness", "day 5: transportation missing"),
    ("no city", put(4, "current_city", "-"), "completeness", "day 4: current_city missing"),
    ("missing day", remove_day(4), "completeness", "day 4 is missing"),
    # wishes
    (
        "no pets allowed",
        both(stay(1, "Bree Quiet House, Bree"), stay(2, "Bree Quiet House, Bree")),
        "preferences",
        "day 1: Bree Quiet House, Bree does not allow pets",
    ),
    (
        "entire home",
        both(stay(1, "Bree Villa, Bree"), stay(2, "Bree Villa, Bree")),
        "preferences",
        "asked for: private room",
    ),
    ("no Indian meal", put(2, "lunch", "Bree Palace, Bree"), "preferences", "no meal of Indian cuisine"),
    (
        "drives",
        put(3, "transportation", "Self-driving, from Bree to Cole"),
        "preferences",
        "the query asks for no self-driving",
    ),
    # again
    (
        "restaurant twice",
        put(2, "dinner", "Bree Bistro, Bree"),
        "diversity",
        "day 2: dinner repeats Bree Bistro, Bree (day 1: dinner)",
    ),
    # what does not exist
    (
        "invented restaurant",
        put(4, "dinner", "Moon Diner, Cole"),
        "hallucination",
        "day 4: dinner Moon Diner, Cole is not in the reference",
    ),
    (
        "invented attraction, last without semicolon",
        put(4, "attraction", "Cole Castle, Cole;Cole Zoo, Cole"),
        "hallucination",
        "attraction Cole Zoo, Cole",
    ),
    ("restaurant of another city", put(4, "dinner", "Bree Palace, Cole"), "hallucination", "Bree Palace, Cole"),
    ("name without a city", put(4, "dinner", "Cole Diner"), "hallucination", "dinner Cole Diner is not"),
    # an unreasonable trip
    (
        "starts elsewhere",
        put(1, "current_city", "from Dell to Bree"),
        "structure",
        "the trip starts in Dell, not in Ada",
    ),
    (
        "minimum nights",
        both(stay(1, "Bree Long Stay, Bree"), stay(2, "Bree Long Stay, Bree")),
        "structure",
        "Bree Long Stay is booked for 2 night(s), its minimum is 30",
    ),
    ("back to the first city", put(4, "current_city", "Bree"), "structure", "day 4: Bree is visited a second time"),
    (
        "too few cities",
        both(
            put(3, "current_city", "Bree"), put(4, "current_city", "Bree"), put(5, "current_city", "from Bree to Ada")
        ),
        "structure",
        "1 cities are visited (Bree), not 2",
    ),
    (
        "meal in another city",
        put(4, "dinner", "Bree Palace, Bree"),
        "structure",
        "day 4: dinner Bree Palace, Bree is not in Cole",
    ),
    (
        "sleeps elsewhere",
        stay(4, "Bree Loft, Bree"),
        "structure",
        "day 4: accommodation Bree Loft, Bree is not in Cole",
    ),
    (
        "drives and flies",
        put(3, "transportation", "Self-driving, from Bree to Cole"),
        "structure",
        "self-driving (day 3) and flight (day 1)",
    ),
    ("a day too many", lambda plan: plan.append({**plan[3], "day": 6}), "structure", "the plan has 6 days, the trip 5"),
]


def test_the_plan_without_fault_has_score_zero():
    assert set(values(good_plan()).values()) == {0.0}


@pytest.mark.parametrize(("fault", "dimension", "message"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_a_fault_is_caught_by_its_dimension_and_named(fault, dimension, message):
    plan = good_plan()
    fault(plan)
    assert any(message in sentence for sentence in findings(plan)[dimension]), findings(plan)[dimension]
    assert 0 < values(plan)[dimension] <= 1


@pytest.mark.parametrize(
    ("fault", "dimension", "expected"),
    [
        (put(2, "dinner", "Bree Palace, Bree"), "budget", 0.74),  # (960 - 20 + 800 - 1000) / 1000
        (put(3, "transportation", "Train, from Bree to Cole"), "connectivity", 1 / 3),
        (put(2, "breakfast", "-"), "completeness", 1 / 20),  # 3 travel days * 2 + 2 other days * 5 + 4 nights
        (put(3, "transportation", "Self-driving, from Bree to Cole"), "preferences", 1 / 4),
        (put(3, "dinner", "-"), "preferences", 1 / 4 * 1 / 2),
        (put(2, "dinner", "Bree Bistro, Bree"), "diversity", 1 / 12),  # 9 meals and 3 attractions
        (put(4, "dinner", "Moon Diner, Cole"), "hallucination", 1 / 16),  # and 4 nights
        (put(4, "dinner", "Bree Palace, Bree"), "structure", 1 / 7),
    ],
    ids=["budget", "connectivity", "completeness", "preferences", "cuisine", "diversity", "hallucination", "structure"],
)
def test_a_dimension_has_the_stated_size(fault, dimension, expected):
    plan = good_plan()
    fault(plan)
    assert values(plan)[dimension] == pytest.approx(expected)


def test_budget_is_at_most_one():
    assert values(good_plan(), budget=100)["budget"] == 1.0
    assert findings(good_plan(), budget=900)["budget"] == [
        f"budget exceeded by $60 of $900: the trip costs ${COST}, most of it for transportation ($480)"
    ]


def test_a_plan_of_days_without_cities_is_connected_to_nothing():
    assert values([{"day": 1, "lunch": "-", "dinner": "-"}])["connectivity"] == 1.0
