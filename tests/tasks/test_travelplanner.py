"""TravelPlanner: reading problems, plans and reference information; labels; constraints."""

import json

import pytest
from task_data import read, write
from travelplanner_world import QUERY, good_plan, row, write_database

from raydebm.errors import TaskDataError
from raydebm.records import Verdict
from raydebm.tasks.travelplanner import TravelPlanner
from raydebm.tasks.travelplanner.dimensions import DIMENSIONS
from raydebm.tasks.travelplanner.plans import read_plan, render_plan
from raydebm.tasks.travelplanner.trip_reference import catalogue_from, read_items
from raydebm.testing import check


def flush_right(*lines):
    """A table of fixed width as the benchmark has it: row numbers, then cells that end where their header ends."""
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    padded = [[cell.rjust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return "\n".join("  ".join([line[0].strip().ljust(widths[0]), *line[1:]]) for line in padded)


TABLE = flush_right(
    ("", "Name", "Average Cost", "Cuisines", "Aggregate Rating", "City"),
    ("39", "Coco Bambu", "72", "Tea, French, BBQ", "4.9", "Rockford"),
    ("251", "Eggspectation - Jaypee  Vasant", "20", "American, BBQ", "4.5", "Rockford"),
)


@pytest.fixture
def task(monkeypatch):
    monkeypatch.delenv("RAYDEBM_TRAVELPLANNER_DB", raising=False)
    return TravelPlanner()


def load(task, folder, *rows):
    return list(task.load("test", source=write(folder / "rows.jsonl", *rows)))


def judged(task, folder, text, **changes):
    [(problem, gold)] = load(task, folder, row(**changes))
    return task.judge(problem, gold, text)


# loading


def test_the_plan_without_fault_is_correct(task, tmp_path):
    judgement = judged(task, tmp_path, render_plan(good_plan()))
    assert (judgement.verdict, judgement.violation_score, judgement.reason) == (Verdict.CORRECT, 0.0, "")


def test_fields_may_stand_as_text_as_in_the_hubs_data(task, tmp_path):
    data = row()
    as_text = {name: str(data[name]) for name in ("local_constraint", "date", "reference_information", "days")}
    assert load(task, tmp_path, {**data, **as_text}) == load(task, tmp_path, data)


def test_an_annotated_plan_that_begins_with_the_query_is_read(task, tmp_path):
    [(_, gold)] = load(task, tmp_path, row(annotated_plan=str([{"org": "Ada"}, [*good_plan(), {}, {}]])))
    assert gold.value["annotated_plan"] == good_plan()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"days": "some"}, "rows.jsonl:1: days must be a whole number, got 'some'"),
        ({"days": 400}, "days 400 is out of range"),
        ({"budget": "much"}, "budget must be a number of dollars, got 'much'"),
        ({"local_constraint": 3}, "local_constraint must be an object"),
        ({"reference_information": "[1, 2]"}, "reference information must be a list of objects"),
        ({"reference_information": "no list"}, "reference information must be a list of objects"),
        (
            {"reference_information": [{"Description": "Ships to Cole", "Content": ""}]},
            "'Ships to Cole' is of an unknown",
        ),
        (
            {"annotated_plan": [{**good_plan()[0], "day": 1}, {**good_plan()[1], "day": 1}]},
            "day 1 is planned more than",
        ),
    ],
)
def test_a_row_not_as_described_is_named(task, tmp_path, changes, message):
    with pytest.raises(TaskDataError, match=message.replace("[", r"\[")):
        load(task, tmp_path, row(**changes))


def test_unknown_split_and_missing_source(task):
    with pytest.raises(TaskDataError, match="unknown split 'validation'; travelplanner has train and test"):
        task.load("validation", source="x")
    with pytest.raises(TaskDataError, match=r"'/nowhere' does not exist; give a \.jsonl file, a folder"):
        task.load("train", source="/nowhere")


def test_the_225_problems_are_divided_175_to_50(task, shared_data):
    folder = str(shared_data / "travelplanner")
    train, test = (
        [problem.problem_id for problem, _ in task.load(split, source=folder)] for split in ("train", "test")
    )
    assert (len(train), len(test)) == (175, 50)
    assert not set(train) & set(test)


def test_human_plans_have_score_zero_but_one(task, shared_data):
    """Plan 42 names places of cities that it does not visit on that day; the evaluator does not look there."""
    folder = str(shared_data / "travelplanner")
    scores = {}
    for split in ("train", "test"):
        for problem, gold in task.load(split, source=folder):
            plan = gold.value["annotated_plan"]
            if plan is not None:
                scores[problem.data["source_id"]] = task.judge(problem, gold, render_plan(plan)).violation_score
    assert len(scores) == 45
    assert [name for name, score in scores.items() if score] == ["travelplanner/train/42"]


# prompts and reference information


def test_the_rows_of_a_problem_are_in_its_prompt_and_its_data(task, tmp_path):
    [(problem, _)] = load(task, tmp_path, row())
    assert "- Bree Curry | $10 | Indian, Cafe\n" in problem.prompt
    assert [stay.name for stay in catalogue_from(problem.data["reference"]).stays.of_city("Cole")] == [
        "Cole Nest",
        "Cole Dorm",
    ]


def test_reference_information_of_another_form_is_refused():
    with pytest.raises(TaskDataError, match="field 'reference' of the problem's data cannot be read"):
        catalogue_from('{"hotels": []}')


def test_tables_of_fixed_width_are_read_with_their_row_numbers():
    [first, second] = read_items([{"Description": "Restaurants in Rockford", "Content": TABLE}], where="x").restaurants
    assert (first.name, first.cost, first.cuisines) == ("Coco Bambu", 72.0, ("Tea", "French", "BBQ"))
    assert second.name == "Eggspectation - Jaypee  Vasant"


def test_every_recorded_reference_reads_as_its_json_form(shared_data):
    for data in read(shared_data / "travelplanner" / "problems_train.jsonl.gz"):
        items = [{"Description": title, "Content": content} for title, content in data["reference_json"].items()]
        assert read_items(data["reference_information"], where="row") == read_items(items, where="row")


def test_a_row_as_json_is_a_problem(task, tmp_path):
    [(problem, _)] = load(task, tmp_path, row())
    assert task.problem_from_text(json.dumps(row())) == problem


def test_a_trip_in_plain_words_is_refused_with_what_to_send(task):
    with pytest.raises(TaskDataError, match="send the benchmark's row as a JSON object"):
        task.problem_from_text(QUERY)


# plans


@pytest.mark.parametrize(
    "text",
    [
        "Here it is:\n```json\n{plan}\n```\nEnjoy!",
        "<think>[{{'day': 1}}]</think>{plan}",
        '{{"plan": {plan}}}',
        "{apart}",
        "{other}\nBetter:\n{plan}",
    ],
    ids=["fenced", "thought", "wrapped", "apart", "corrected"],
)
def test_a_plan_is_found_however_it_is_written(text):
    plan, rendered = good_plan(), render_plan(good_plan())
    forms = {
        "plan": rendered,
        "apart": "\n".join(json.dumps(day) for day in plan),
        "other": render_plan(plan[:2]),
    }
    assert read_plan(text.format(**forms)).plan == plan


@pytest.mark.parametrize(
    ("days", "reason"),
    [
        ([{**good_plan()[0]}, {**good_plan()[1], "day": 1}], "day 1 is planned more than once"),
        ([{**good_plan()[0]}, {**good_plan()[1], "day": "soon"}], "only some of the days have a readable number"),
        ([{**good_plan()[0], "attractions": "x;"}], "the field 'attraction' of a day has two values"),
        ([{"hello": 1}], "no JSON list of day objects in the text"),
    ],
    ids=["day-twice", "unreadable-number", "field-twice", "no-days"],
)
def test_what_contradicts_itself_is_no_plan(days, reason):
    reading = read_plan(json.dumps(days))
    assert (reading.plan, reading.reason) == (None, reason)


def test_a_string_may_hold_a_line_break():
    assert (
        read_plan('[{"day": 1, "lunch": "Bree\nCurry, Bree", "dinner": "-"}]').plan[0]["lunch"] == "Bree\nCurry, Bree"
    )


def test_a_key_that_comes_twice_with_two_values_is_no_plan():
    assert read_plan('[{"day": 1, "lunch": "A, Bree", "lunch": "B, Bree", "dinner": "-"}]').plan is None


def test_an_unfinished_list_is_read_as_days_without_a_list():
    assert read_plan(render_plan(good_plan())[:-1]).plan == good_plan()
    assert read_plan(render_plan(good_plan())[:-2]).plan == good_plan()[:-1]


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("attraction", ["A, Bree", "B, Bree"], "A, Bree;B, Bree;"),
        ("lunch", None, "-"),
        ("lunch", ["A, Bree"], "A, Bree"),
        ("lunch", {"name": "A"}, None),
    ],
)
def test_values_of_other_kinds_are_read_or_left_out(field, value, expected):
    assert read_plan(json.dumps([{**good_plan()[1], field: value}])).plan[0].get(field) == expected


# labels and constraints


def test_no_plan_scores_one(task, tmp_path):
    judgement = judged(task, tmp_path, "I cannot plan that.")
    assert (judgement.verdict, judgement.violation_score) == (Verdict.INCORRECT, 1.0)
    assert judgement.reason == "no JSON list of day objects in the text"


def test_the_score_is_the_mean_of_the_parts_of_the_label(task, tmp_path):
    plan = good_plan()
    del plan[1]["lunch"]
    judgement = judged(task, tmp_path, render_plan(plan))

    assert set(judgement.parts) == set(DIMENSIONS)
    assert judgement.parts["completeness"] > 0
    assert judgement.violation_score == pytest.approx(sum(judgement.parts.values()) / 8)


def test_without_anything_to_check_against_there_is_no_label(task, tmp_path):
    judgement = judged(task, tmp_path, render_plan(good_plan()), reference_information=None)
    assert (judgement.verdict, judgement.violation_score) == (Verdict.UNLABELED, None)
    assert "set RAYDEBM_TRAVELPLANNER_DB" in judgement.reason


def test_the_database_serves_where_there_is_no_reference_information(task, tmp_path, monkeypatch):
    monkeypatch.setenv("RAYDEBM_TRAVELPLANNER_DB", str(write_database(tmp_path / "db")))
    judgement = judged(task, tmp_path, render_plan(good_plan()), reference_information=None)
    assert judgement.violation_score == 0.0


def test_a_candidate_is_told_every_violation_with_place_and_amount(task, tmp_path):
    [(problem, _)] = load(task, tmp_path, row())
    plan = good_plan()
    plan[1]["dinner"] = "-"
    plan[0]["accommodation"] = plan[1]["accommodation"] = "Bree Tower, Bree"
    report = check(task, problem, render_plan(plan))
    assert [(violation.constraint, violation.message) for violation in report.violations] == [
        (
            "budget",
            "budget exceeded by $1,580 of $1,000: the trip costs $2,580, most of it for accommodation ($1,940)",
        ),
        ("completeness", "day 2: dinner missing"),
    ]
    assert report.penalty == pytest.approx(1.0 + 1 / 20)


def test_without_reference_information_gaps_are_still_found(task, tmp_path):
    [(problem, _)] = load(task, tmp_path, row(reference_information=None))
    plan = good_plan()
    del plan[1]["dinner"]
    report = check(task, problem, render_plan(plan))
    assert [violation.message for violation in report.violations] == ["day 2: dinner missing"]


def test_votes_do_not_count_blanks_and_last_semicolons(task, tmp_path):
    [(problem, _)] = load(task, tmp_path, row())
    other = good_plan()
    other[1]["attraction"] = "Bree  Museum, Bree; Bree Park, Bree"
    other[4]["lunch"] = "None"
    assert task.vote_key(problem, other) == task.vote_key(problem, good_plan())
