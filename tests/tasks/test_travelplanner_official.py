"""The official evaluator's constraints: its quirks one by one, its pass rates, and every recorded outcome."""

from collections import Counter

import pytest
from travelplanner_world import COST, good_plan, row, write_database

from raydebm.errors import TaskDataError
from raydebm.run.json_lines import read_json_lines
from raydebm.tasks.travelplanner.database import read_database
from raydebm.tasks.travelplanner.official import COMMONSENSE, HARD, evaluate, pass_rates, total_cost
from raydebm.tasks.travelplanner.trip import trip_of


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory):
    return read_database(str(write_database(tmp_path_factory.mktemp("db") / "database")))


def verdicts(sandbox, change=lambda plan: None, **changes):
    plan = good_plan()
    change(plan)
    result = evaluate(trip_of(row(**changes)), plan, sandbox)
    return {name: outcome.verdict for name, outcome in {**result.commonsense, **result.hard}.items()}


def put(day, field, value):
    return lambda plan: plan[day - 1].__setitem__(field, value)


def test_the_good_plan_passes_everything(sandbox):
    assert set(verdicts(sandbox).values()) == {True}
    assert evaluate(trip_of(row()), good_plan(), sandbox).passes


def test_its_cost_is_the_hand_computed_one(sandbox):
    assert total_cost(trip_of(row()), good_plan(), sandbox) == COST


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        (
            put(1, "current_city", "from Dell to Bree"),
            {"is_reasonable_visiting_city", "is_not_absent", "is_valid_information_in_current_city"},
        ),
        (put(2, "dinner", "Bree Bistro, Bree"), {"is_valid_restaurants"}),
        (put(2, "attraction", "Bree Park, Bree;Bree Park, Bree;"), {"is_valid_attractions"}),
        (put(2, "attraction", "Bree Park, Bree;Bree Park, Bree"), set()),
        (put(4, "attraction", "Cole Castle, Cole;Cole Zoo, Cole"), set()),
        (put(1, "dinner", "Cole Diner, Cole"), {"is_valid_restaurants", "is_valid_information_in_current_city"}),
        (put(4, "accommodation", "-"), {"is_not_absent"}),
        (put(4, "attraction", "-"), {"is_not_absent"}),
        (put(3, "transportation", "Bus, from Bree to Cole"), set()),
        (put(3, "dinner", "-"), {"valid_cuisine"}),
        (put(2, "dinner", "Bree Palace, Bree"), {"valid_cost"}),
    ],
    ids=[
        "another-origin",
        "restaurant-twice",
        "attraction-twice",
        "attraction-twice-but-not-closed",
        "invented-attraction-not-closed",
        "restaurant-of-another-city",
        "no-accommodation",
        "no-attraction",
        "a-bus-is-not-looked-up",
        "no-french-meal",
        "too-expensive",
    ],
)
def test_a_change_breaks_exactly_these(sandbox, change, broken):
    assert {name for name, verdict in verdicts(sandbox, change).items() if verdict is False} == broken


def test_on_a_day_in_one_city_a_shared_letter_is_enough(sandbox):
    """A restaurant of Cole on the day in Bree shares an "e" with it; on a day of travel it would be misplaced."""
    by_check = verdicts(sandbox, put(2, "dinner", "Cole Kitchen, Cole"))
    assert by_check["is_valid_information_in_current_city"] is True


def test_minimum_nights_count_only_where_the_name_is_unambiguous(sandbox):
    def stay(name):
        def change(plan):
            plan[0]["accommodation"] = plan[1]["accommodation"] = name

        return change

    assert verdicts(sandbox, stay("Bree Long Stay, Bree"))["is_valid_accommodation"] is False
    assert verdicts(sandbox, stay("Bree, Bree"))["is_valid_accommodation"] is True


def test_hard_constraints_are_reached_only_with_complete_and_known_information(sandbox):
    assert not set(HARD) & set(verdicts(sandbox, put(2, "dinner", "Moon Diner, Bree")))


def test_what_is_not_asked_for_has_no_verdict(sandbox):
    wishes = dict.fromkeys(("house rule", "cuisine", "room type", "transportation"))
    by_check = verdicts(sandbox, local_constraint=wishes)
    assert [name for name, verdict in by_check.items() if verdict is None] == [
        "valid_cuisine",
        "valid_room_rule",
        "valid_transportation",
        "valid_room_type",
    ]


def test_a_flight_without_number_fails_where_the_authors_program_crashes(sandbox):
    by_check = verdicts(sandbox, put(1, "transportation", "Flight Number:, from Ada to Bree"))
    assert by_check["is_valid_information_in_sandbox"] is False


@pytest.mark.parametrize(
    "plan",
    [[{}], [{"day": 1}], [{"current_city": 3, "lunch": ["x"]}], [{"current_city": "from", "transportation": "taxi"}]],
)
def test_any_plan_gets_verdicts(sandbox, plan):
    result = evaluate(trip_of(row()), plan, sandbox)
    assert set(result.commonsense) == set(COMMONSENSE)
    assert not result.passes


def test_pass_rates_are_those_of_the_benchmark(sandbox):
    """Three problems of five requested hard constraints each: a perfect plan, one too expensive, none."""
    trip, expensive = trip_of(row()), good_plan()
    expensive[1]["dinner"] = "Bree Palace, Bree"
    rates = pass_rates(evaluate(trip, plan, sandbox) for plan in (good_plan(), expensive, None))
    assert rates.n == 3
    assert rates.delivery == pytest.approx(2 / 3)
    assert rates.commonsense_micro == pytest.approx(16 / 24)
    assert rates.commonsense_macro == pytest.approx(2 / 3)
    assert rates.hard_micro == pytest.approx(9 / 15)
    assert rates.hard_macro == pytest.approx(1 / 3)
    assert rates.final == pytest.approx(1 / 3)


def test_pass_rates_of_nothing_are_zero():
    assert pass_rates([]).final == 0.0


def test_a_database_without_a_column_is_named(tmp_path):
    folder = write_database(tmp_path / "db")
    (folder / "flights" / "flights.csv").write_text("Flight Number\nF1\n", encoding="utf-8")
    with pytest.raises(TaskDataError, match=r"flights\.csv' lacks column\(s\) Price, DepTime"):
        read_database(str(folder))


class Agreement:
    """Our verdicts beside the recorded official outcomes."""

    def __init__(self, folder, pool):
        sandbox = read_database(str(folder / "database"))
        trips = {
            problem["problem_id"]: trip_of(problem)
            for part in ("train", "validation")
            for _, problem in read_json_lines(str(folder / f"problems_{part}.jsonl.gz"))
        }
        self.total, self.same = Counter(), Counter()
        self.num_plans = 0
        for _, plan in read_json_lines(str(folder / pool)):
            self.num_plans += 1
            result = evaluate(
                trips[plan["problem_id"]], plan["plan"] if isinstance(plan["plan"], list) else None, sandbox
            )
            recorded = plan["constraints"]
            if recorded is None:  # no plan, or the authors' program crashed on it
                continue
            ours = {name: outcome.verdict for name, outcome in {**result.commonsense, **result.hard}.items()}
            for name in (*COMMONSENSE, *HARD):
                self.total[name] += 1
                self.same[name] += recorded.get(name, "not reached") == ours.get(name, "not reached")


@pytest.mark.slow
@pytest.mark.parametrize(("pool", "num_plans"), [("pool_validation.jsonl.gz", 14_625), ("pool_train.jsonl.gz", 223)])
def test_verdicts_are_the_recorded_ones(shared_data, pool, num_plans):
    agreement = Agreement(shared_data / "travelplanner", pool)
    assert agreement.num_plans == num_plans
    assert len(agreement.total) == 13
    assert min(agreement.same[name] / agreement.total[name] for name in agreement.total) >= 0.999
    assert agreement.same == agreement.total  # in fact every one of them
