"""What the ask page asks the service: its options, and problems of the run's test split without gold."""

import pytest

from raydebm.records import Gold, Problem
from raydebm.run.directory import RunDir
from raydebm.run.tables import SplitProblem
from raydebm.service.settings import AppArgs, load_bundle
from raydebm.tasks import get_task


@pytest.fixture
def with_problems(write_run, puzzle):
    """A run with one training problem, two test problems, and golds."""
    run = RunDir(write_run())
    problems = [
        (Problem(task="knights_knaves", problem_id=f"p{index}", prompt=f"{puzzle} ({index})", data={"n": index}), split)
        for index, split in enumerate(["train", "test", "test"])
    ]
    run.write_problems(SplitProblem(problem=problem, split=split) for problem, split in problems)
    golds = [Gold(task="knights_knaves", problem_id=f"p{index}", value={"secret": "SESAME"}) for index in range(3)]
    run.write_golds(golds)
    return run


@pytest.fixture
def asking(client_of):
    return lambda run: client_of(load_bundle(AppArgs(run_dir=run.root)))


def test_a_problem_of_the_test_split_by_its_number(asking, with_problems, puzzle):
    client = asking(with_problems)
    assert client.get("/v1/options").json()["num_problems"] == 2
    body = client.get("/v1/problems?index=1").json()
    assert (body["index"], body["total"], body["task"]) == (1, 2, "knights_knaves")
    assert body["problem"] == {"prompt": f"{puzzle} (2)", "data": {"n": 2}, "problem_id": "p2", "difficulty": ""}


def test_gold_is_never_sent(asking, with_problems):
    client = asking(with_problems)
    assert "SESAME" not in client.get("/v1/problems?index=0").text
    assert "SESAME" not in client.get("/v1/options").text


def test_a_table_that_cannot_be_read_keeps_nobody_from_asking(asking, with_problems):
    with_problems.write_bytes(b"not parquet", "problems", "problems.parquet")
    client = asking(with_problems)
    assert client.get("/v1/options").json()["num_problems"] == 0
    reply = client.get("/v1/problems")
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "pool_unusable")


def test_the_sample_goes_back_as_it_came(asking, with_problems, puzzle):
    """The shape of a sample's problem is that of a triage request, so that its id and data stay."""
    problem = get_task("knights_knaves").problem_from_text(puzzle)
    mine = Problem(task="knights_knaves", problem_id="mine", prompt=puzzle, data=problem.data)
    with_problems.write_problems([SplitProblem(problem=mine, split="test")])
    client = asking(with_problems)
    sample = client.get("/v1/problems?index=0").json()
    reply = client.post("/v1/triage", {"task": sample["task"], "problem": sample["problem"]})
    assert (reply.status_code, reply.json()["problem_id"]) == (200, "mine")
