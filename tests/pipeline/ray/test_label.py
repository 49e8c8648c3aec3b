"""Labels on Ray Data, and checkers that crash, hang or end their process."""

import json
from dataclasses import replace

import pytest

from raydebm.config import TaskConfig, parse_recipe
from raydebm.errors import PoolError
from raydebm.pipeline.checker import DeadlineChecker
from raydebm.pipeline.ray.label import label, rows_per_task
from raydebm.records import Candidate, Gold, Problem, Verdict
from raydebm.run.directory import RunDir
from raydebm.tasks import task_of

PROBLEM = Problem(task="moody", problem_id="p", prompt="say yes")
GOLD = Gold(task="moody", problem_id="p", value={"text": "yes"})


def candidate(number, text, error=None):
    return Candidate(candidate_id=f"c{number:04d}", task="moody", problem_id="p", generator="g", text=text, error=error)


@pytest.fixture
def checker():
    checker = DeadlineChecker(TaskConfig(name="moody"), deadline_s=60.0)
    yield checker
    checker.close()


def stored(run, candidates):
    run.write_candidates(candidates)
    return run.stored_candidates()


def verdict_of(checker, text):
    return checker.check(PROBLEM, GOLD, candidate(1, text))[0].verdict


@pytest.fixture
def hung(checker, monkeypatch):
    """The rows of a candidate whose check never ends, within a time in which no other would have to end."""

    def rows():
        with monkeypatch.context() as short:
            short.setattr(checker, "_deadline_s", 0.5)
            return checker.check(PROBLEM, GOLD, candidate(1, "hang"))

    return rows


def test_a_checker_that_hangs_is_stopped_and_its_row_says_so(hung):
    label, report = hung()

    assert label.verdict == Verdict.UNLABELED
    assert "longer than 0.5 s" in label.reason
    assert (report.penalty, report.answer) == (float("inf"), None)
    assert "longer than 0.5 s" in report.error


def test_the_next_candidate_is_checked_after_one_hung_and_one_ended_the_process(checker, hung):
    verdicts = [hung()[0].verdict, *(verdict_of(checker, text) for text in ("yes", "exit", "no", "crash", "yes"))]

    assert verdicts == ["unlabeled", "correct", "unlabeled", "incorrect", "unlabeled", "correct"]


def moody_recipe():
    generators = [{"kind": "recorded", "name": "g", "pool": "p", "model": "m"}]
    return parse_recipe({"name": "x", "task": {"name": "moody"}, "generators": generators})


@pytest.mark.ray
def test_every_candidate_gets_a_label_and_a_report_in_order(local_ray, tmp_path):
    texts = ["yes", "no", "exit", "crash", "mumble", "far too long"] + ["yes"] * 600
    candidates = [candidate(number, text) for number, text in enumerate(texts)]
    candidates.append(candidate(9999, None, error="no reply"))
    run = RunDir(str(tmp_path))
    seen = []

    summary = label(
        {"p": PROBLEM},
        {"p": GOLD},
        stored(run, candidates),
        recipe=moody_recipe(),
        run=run,
        on_progress=lambda done, total: seen.append((done, total)),
    )

    labels = run.labels()
    reports = run.reports()
    assert [row.candidate_id for row in labels] == [row.candidate_id for row in candidates]
    assert [row.candidate_id for row in reports] == [row.candidate_id for row in candidates]
    assert [row.verdict.value for row in labels[:6]] == [
        "correct", "incorrect", "unlabeled", "unlabeled", "incorrect", "incorrect",
    ]  # fmt: skip
    assert [row.penalty for row in reports[:6]] == [0, 0, float("inf"), 0, float("inf"), 0.5]
    assert "no reply" in labels[-1].reason
    assert seen[-1] == (607, 607)
    assert [summary[str(verdict)] for verdict in Verdict] == [601, 3, 3]
    assert summary["parsed"] == 604
    assert json.dumps(summary)


@pytest.mark.ray
def test_every_candidate_has_the_time_that_its_task_allows(local_ray, tmp_path, monkeypatch):
    task = task_of(moody_recipe().task)
    monkeypatch.setattr(type(task), "defaults", replace(task.defaults, label_deadline_s=0.5))
    run = RunDir(str(tmp_path))
    label({"p": PROBLEM}, {"p": GOLD}, stored(run, [candidate(1, "hang")]), recipe=moody_recipe(), run=run)
    (row,) = run.labels()
    assert "longer than 0.5 s" in row.reason


@pytest.mark.ray
def test_a_task_says_how_many_candidates_are_worth_another_checker_process(local_ray, tmp_path):
    run = RunDir(str(tmp_path))
    candidates = stored(run, [candidate(i, "who") for i in range(700)])
    label({"p": PROBLEM}, {"p": GOLD}, candidates, recipe=moody_recipe(), run=run)
    assert len({row.reason for row in run.labels()}) == 2


def test_a_candidate_of_an_unknown_problem_is_an_error_before_anything_starts(tmp_path):
    run = RunDir(str(tmp_path))
    with pytest.raises(PoolError, match="'p'"):
        label({}, {}, stored(run, [candidate(1, "yes")]), recipe=moody_recipe(), run=run)


@pytest.mark.parametrize(
    ("total", "per_worker", "num_workers", "expected"),
    [
        (1, 400, 1, 1),
        (700, 400, 2, 350),
        (10_000, 4096, 2, 2500),
        (1000, 32, 8, 32),
        (100_000, 32, 8, 128),
        (1_000_000, 4096, 2, 16_130),
    ],
    ids=["one", "a-share", "halves-of-a-share", "slow-checks", "many-slow-checks", "many"],
)
def test_tasks_are_worth_their_process_and_end_together(total, per_worker, num_workers, expected):
    assert rows_per_task(total, per_worker=per_worker, num_workers=num_workers) == expected
