"""Outcomes as labels, and the run directory that they become."""

import json

import pytest
from decisions_by_hand import sums
from reported_decisions import RECIPE

from raydebm.config import parse_recipe
from raydebm.errors import ConfigError, PoolError
from raydebm.pipeline.runner import Pipeline
from raydebm.records import Label, Problem, Verdict
from raydebm.run.directory import RunDir
from raydebm.run.fingerprints import current_manifest
from raydebm.service.feedback import CONTRADICTION, labelled_decisions, merged, write_run
from raydebm.tasks import get_task
from raydebm.tasks.declared import DeclaredTask

SHORT = {"name": "short", "rule": "count", "of": "answer", "at_most": 20}


def labelled(reader, **options):
    return list(labelled_decisions(reader, get_task, **options))


def verdicts(decision):
    return [str(label.verdict) for label in decision.labels.values()]


# ---- labels --------------------------------------------------------------------------------------------------------


def test_a_right_answer_is_gold_for_all_candidates(reader):
    (decision,) = labelled(reader([(sums(0, ["2", "3", "2.0", None]), True)]))
    assert verdicts(decision) == ["correct", "incorrect", "correct", "incorrect"]
    assert decision.gold.value == {"answer": "2"}
    assert (decision.correct, len(decision.pool), decision.problem.problem_id) == (True, 4, "p0")


def test_a_wrong_answer_with_the_correct_one_labels_all_candidates(reader):
    (decision,) = labelled(reader([(sums(0, ["2", "3", None]), (False, "ada", "#### 3"))]))
    assert verdicts(decision) == ["incorrect", "correct", "incorrect"]


def test_a_wrong_answer_alone_says_nothing_about_others(reader):
    (decision,) = labelled(reader([(sums(0, ["2", "3", "2.00", None]), False)]))
    assert verdicts(decision) == ["incorrect", "unlabeled", "incorrect", "unlabeled"]
    assert decision.gold is None


def test_tasks_whose_right_answers_differ_label_the_selected_answer_alone(reader):
    """A program that is right makes no other program wrong."""

    class Programs:
        name = "gsm8k"

    stored = reader([(sums(0, ["2", "3"]), (True, "ada", "2"))])
    (decision,) = labelled_decisions(stored, lambda name: Programs())
    assert (verdicts(decision), decision.gold) == (["correct", "unlabeled"], None)


@pytest.mark.parametrize("changes", [{}, {"labels": "constraints", "constraints": [SHORT], "gold": {"field": "a"}}])
def test_a_task_file_that_does_not_label_by_gold_labels_the_selected_answer_alone(reader, changes):
    """Another answer may be right, too, so that the reported one is no gold and no contradiction."""
    task = DeclaredTask({"name": "gsm8k", "instructions": "Answer.", "prompt": "{question}", **changes})
    stored = reader([(sums(0, ["2", "3"]), (False, "ada", "4"))])

    (decision,) = labelled_decisions(stored, lambda name: task)

    assert (decision.fault, decision.gold, verdicts(decision)) == (None, None, ["incorrect", "unlabeled"])


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ((True, "ada", "3"), "the selected answer was reported as right, but the reported answer makes it incorrect"),
        ((False, "ada", "2"), "the selected answer was reported as wrong, but the reported answer makes it correct"),
        ((False, "ada", "no idea"), "task 'gsm8k' finds no answer in the reported text"),
    ],
    ids=["right", "wrong", "unreadable"],
)
def test_reports_that_cannot_all_be_true_label_nothing(reader, said, reason):
    (decision,) = labelled(reader([(sums(0, ["2", "3"]), said)]))
    assert (decision.fault, verdicts(decision)) == (reason, ["unlabeled", "unlabeled"])


def test_the_last_report_counts_and_reporters_can_be_chosen(reader):
    stored = reader([(sums(0, ["2"]), [(True, "ada", None), (False, "bo", None), (True, "cy", None)])])
    assert labelled(stored)[0].correct
    assert not labelled(stored, by=["ada", "bo"])[0].correct
    assert labelled(stored, by=["dee"]) == []


# ---- the run directory ---------------------------------------------------------------------------------------------


@pytest.fixture
def pairs():
    """Ten decisions with outcomes about two candidates each, and one without."""
    told = [(sums(index, [str(index + 2), "99"]), True) for index in range(9)]
    wrong = (sums(9, ["99", "11"]), (False, "ada", "11"))
    return [*told, wrong, (sums(10, ["12"]), [])]


@pytest.fixture
def imported(reader, pairs, tmp_path):
    def run(*others, **options):
        values = {"recipe": parse_recipe(RECIPE), "out": str(tmp_path / "out"), "test_frac": 0.2, "seed": 0}
        made = write_run(labelled(reader([*pairs, *others])), **(values | options))
        return made, RunDir(values["out"])

    return run


def test_tables_hold_problems_candidates_labels_and_gold(imported):
    made, run = imported()
    assert (made.decisions, len(made.problems), len(made.test), len(made.golds)) == (10, 10, 2, 10)
    problems = run.problems()
    assert {row.problem.prompt for row in problems} == {f"What is {index} plus 2?" for index in range(10)}
    assert sorted(row.split for row in problems) == ["test"] * 2 + ["train"] * 8
    assert len(run.golds()) == 10
    labels = {label.candidate_id: label for label in run.labels()}
    candidates = run.candidates()
    assert [str(labels[candidate.candidate_id].verdict) for candidate in candidates[-2:]] == ["incorrect", "correct"]
    assert len(run.reports()) == 20


def test_the_pipeline_takes_them_as_its_own_and_makes_pairs(imported, tmp_path):
    """No Ray and no endpoint is needed up to the pairs, for nothing is missing."""
    imported()
    recipe = parse_recipe(json.loads((tmp_path / "out" / "recipe.json").read_text()))
    pipeline = Pipeline(recipe=recipe)
    assert recipe.decision.max_passes == 1
    assert current_manifest("labels", recipe, pipeline.run) is not None
    pipeline.make("pairs")
    facts = pipeline.run.manifest("pairs")["facts"]
    assert facts["train"]["problems"] + facts["validation"]["problems"] == 8


def test_other_settings_do_not_overwrite_what_was_imported(imported, tmp_path):
    imported()
    tree = json.loads((tmp_path / "out" / "recipe.json").read_text())
    pipeline = Pipeline(recipe=parse_recipe({**tree, "seed": 5}))
    with pytest.raises(ConfigError, match="holds imported decisions, and its stage 'problems' is missing or was made"):
        pipeline.make("pairs")


def test_problems_that_clients_named_alike_stay_apart(imported):
    problem = Problem(task="gsm8k", problem_id="p0", prompt="What is 40 plus 2?")
    made, run = imported((sums(0, ["42", "7"], problem=problem), True))
    assert (len(made.problems), len(made.candidates)) == (11, 22)
    labels = run.labels()
    assert len({label.problem_id for label in labels}) == 11


def test_what_the_ensemble_read_is_the_problem(imported):
    _, run = imported((sums(11, ["13", "7"], scored_prompt="Before: hello. What is 11 plus 2?"), (True, "a", None)))
    prompts = {row.problem.prompt for row in run.problems()}
    assert "Before: hello. What is 11 plus 2?" in prompts


def test_contradictory_decisions_are_left_out_and_counted(imported):
    made, _ = imported((sums(11, ["13", "7"]), (True, "ada", "7")))
    assert (made.decisions, made.contradictory, len(made.problems)) == (11, 1, 10)


def test_two_decisions_about_one_candidate_agree_or_leave_it_unlabelled():
    right, wrong, unknown = (
        Label(candidate_id="c", problem_id="p", verdict=verdict)
        for verdict in (Verdict.CORRECT, Verdict.INCORRECT, Verdict.UNLABELED)
    )
    assert merged(None, right) is right
    assert merged(right, unknown) is right
    assert merged(unknown, right) is right
    both = merged(right, wrong)
    assert (both.verdict, both.reason) == (Verdict.UNLABELED, CONTRADICTION)
    assert merged(both, right).verdict is Verdict.UNLABELED


def test_a_folder_with_a_run_is_not_overwritten(imported):
    imported()
    with pytest.raises(ConfigError, match="contains a run already"):
        imported()


def test_too_few_problems_are_refused_in_words(reader, tmp_path):
    stored = reader([(sums(0, ["2"]), True)])
    with pytest.raises(PoolError, match="1 decisions with an outcome make 1 problems; training needs at least 3"):
        write_run(labelled(stored), recipe=parse_recipe(RECIPE), out=str(tmp_path / "out"), test_frac=0.2, seed=0)


# ---- commands ------------------------------------------------------------------------------------------------------


def test_the_command_reads_the_recipe_beside_the_records(reader, pairs, tmp_path, raydebm):
    stored = reader(pairs)
    (tmp_path / "run" / "recipe.json").write_text(json.dumps(RECIPE))
    done = raydebm("import-decisions", stored.root, "--out", tmp_path / "out", "--by", "ada")
    assert done.returncode == 0, done.stderr
    assert "10 decisions with an outcome: 10 problems (2 for testing, 10 with a correct answer), " in done.stdout
    assert "20 candidates (10 correct, 10 incorrect, 0 unlabeled)" in done.stdout
    assert (tmp_path / "out" / "labels" / "manifest.json").exists()


def test_replay_shows_the_accuracy_by_outcomes(reader, pairs, raydebm):
    printed = raydebm("replay", reader(pairs).root).stdout
    assert "accuracy of accepted answers: 90.0% (n=10) recorded, 90.0% (n=10) replayed" in printed
