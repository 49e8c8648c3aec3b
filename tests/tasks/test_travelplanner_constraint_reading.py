"""E_constraint reads places more strictly than a label: another spelling or an invented name is no way to save."""

import pytest
from travelplanner_world import good_plan, plan_view, row

from raydebm.records import Gold, Verdict
from raydebm.tasks.travelplanner import TravelPlanner
from raydebm.tasks.travelplanner.dimensions import costs_of, dimension_findings
from raydebm.tasks.travelplanner.plans import canonical_plan, render_plan
from raydebm.tasks.travelplanner.trips import problem_of_row


def view(purpose, *changes):
    """The plan without fault, with (day, field, text) changed."""
    plan = good_plan()
    for day, field, text in changes:
        plan[day - 1][field] = text
    return plan_view(plan, purpose)


def costs(purpose, *changes):
    amounts = costs_of(view(purpose, *changes))
    return amounts["meals"], amounts["accommodation"]


def test_a_plan_without_fault_costs_the_same_either_way():
    """Nine meals for two at 10 dollars; two nights at 80 and two at 70."""
    assert costs("label") == costs("constraint") == (180.0, 300.0)


@pytest.mark.parametrize(
    ("change", "label", "constraint"),
    [
        ((1, "accommodation", "Bree Tower, Bree, Westland"), (180.0, 220.0), (180.0, 1120.0)),
        ((1, "accommodation", "Invented House, Bree"), (180.0, 220.0), (180.0, 300.0)),
        ((3, "accommodation", "Invented House, Nowhere"), (180.0, 230.0), (180.0, 250.0)),
        ((2, "dinner", "Bree Palace, Bree, Westland"), (160.0, 300.0), (960.0, 300.0)),
        ((2, "dinner", "Invented Diner, Bree"), (160.0, 300.0), (180.0, 300.0)),
        ((2, "dinner", "a diner"), (160.0, 300.0), (180.0, 300.0)),
        ((2, "dinner", "Soup, Salad and More, Bree"), (160.0, 300.0), (180.0, 300.0)),
        ((2, "attraction", "Invented Museum, Bree"), (180.0, 300.0), (180.0, 300.0)),
        ((2, "dinner", "-"), (160.0, 300.0), (160.0, 300.0)),
    ],
    ids=[
        "stay-with-state",
        "invented-stay",
        "invented-city-costs-the-day's-city",
        "meal-with-state",
        "invented-meal",
        "no-city",
        "comma-in-the-name",
        "attractions-cost-nothing",
        "nothing-is-nothing",
    ],
)
def test_what_a_place_costs_by_purpose(change, label, constraint):
    assert (costs("label", change), costs("constraint", change)) == (label, constraint)


def test_a_house_rule_is_found_behind_a_spelling_with_state():
    change = (1, "accommodation", "Bree Quiet House, Bree, Westland")

    by_purpose = {
        purpose: [finding.values["place"] for finding in dimension_findings(view(purpose, change))["preferences"]]
        for purpose in ("label", "constraint")
    }

    assert by_purpose == {"label": [], "constraint": ["Bree Quiet House, Bree, Westland"]}


def test_the_tasks_constraints_read_strictly_and_its_label_as_the_benchmark():
    task, data = TravelPlanner(), row()
    problem = problem_of_row(data, "row")
    plan = good_plan()
    for day in (1, 2):
        plan[day - 1]["accommodation"] = "Bree Tower, Bree, Westland"
    answer = canonical_plan(plan).plan

    [budget] = [constraint for constraint in task.constraints if constraint.name == "budget"]
    judged = task.judge(problem, Gold(task=task.name, problem_id=problem.problem_id, value={}), render_plan(answer))

    assert len(list(budget.check(problem, answer))) == 1
    assert judged.verdict is Verdict.INCORRECT
    assert judged.parts["budget"] == 0.0
    assert judged.parts["hallucination"] > 0
