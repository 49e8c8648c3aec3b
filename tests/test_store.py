"""The run directory: what goes in comes out, torn writes are never seen, bad tables are named."""

import gzip
import json
import math

import pyarrow as pa
import pytest

from raydebm import store
from raydebm.errors import PoolError, TaskDataError
from raydebm.records import (
    Candidate,
    ConstraintReport,
    Energies,
    Gold,
    Label,
    Pair,
    Problem,
    Sampling,
    Verdict,
    Violation,
)

CANDIDATE = Candidate(
    candidate_id="c1",
    task="t",
    problem_id="p1",
    generator="g",
    text="hello ✓",
    sampling=Sampling(temperature=0.3, top_p=0.9, max_tokens=7, stop=("\n\n",)),
    seed=2**31 - 1,
    completion_tokens=3,
    cost_usd=0.001,
)
REPORT = ConstraintReport(
    candidate_id="c1",
    answer="1",
    vote_key="1",
    penalty=0.5,
    violations=(Violation(constraint="budget", penalty=0.5, weight=1.0, message="exceeded by $3"),),
)


@pytest.fixture
def run(tmp_path):
    return store.RunDir(str(tmp_path / "run"))


@pytest.mark.parametrize(
    ("record", "to_row", "from_row", "schema"),
    [
        (CANDIDATE, store.candidate_row, store.candidate_of, store.CANDIDATES),
        (
            Candidate(candidate_id="c2", task="t", problem_id="p1", generator="g", text=None, error="timeout"),
            store.candidate_row, store.candidate_of, store.CANDIDATES,
        ),
        (
            Label(candidate_id="c1", problem_id="p1", verdict=Verdict.UNLABELED, reason="checker died"),
            store.label_row, store.label_of, store.LABELS,
        ),
        (
            Label(candidate_id="c1", problem_id="p1", verdict=Verdict.INCORRECT, severity=5, reason="runtime_error"),
            store.label_row, store.label_of, store.LABELS,
        ),
        (
            Label(
                candidate_id="c1", problem_id="p1", verdict=Verdict.INCORRECT, violation_score=0.25,
                parts={"budget": 0.5, "diversity": 0.0},
            ),
            store.label_row, store.label_of, store.LABELS,
        ),
        (REPORT, store.report_row, store.report_of, store.REPORTS),
        (
            ConstraintReport(candidate_id="c1", answer=None, vote_key=None, penalty=math.inf),
            store.report_row, store.report_of, store.REPORTS,
        ),
        (Energies(candidate_id="c1", members=(1.5, -2.0)), store.energies_row, store.energies_of, store.ENERGIES),
        (Pair(problem_id="p", chosen="a", rejected="b"), store.pair_row, store.pair_of, store.PAIRS),
        (Gold(task="t", problem_id="p", value={"answer": "18"}), store.gold_row, store.gold_of, store.GOLDS),
        (
            Problem(task="t", problem_id="p", prompt="q", data={"names": ["A"]}, difficulty="2 people"),
            lambda problem: store.problem_row(problem, "train"), store.problem_of, store.PROBLEMS,
        ),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_record_survives_its_table(run, record, to_row, from_row, schema):
    run.write_table([to_row(record)], schema, "stage", "t.parquet")

    assert [from_row(row) for row in run.read_table(schema, "stage", "t.parquet")] == [record]


def test_a_row_that_could_not_be_scored_gives_no_energies():
    assert store.energies_of({"error": "NaN", "members": None, "candidate_id": "c"}) is None


def test_a_missing_table_says_so(run):
    with pytest.raises(PoolError, match=r"labels/labels\.parquet does not exist"):
        run.read_table(store.LABELS, "labels", "labels.parquet")


def test_an_unreadable_table_is_named(run):
    run.write_bytes(b"not parquet", "labels", "labels.parquet")

    with pytest.raises(PoolError, match="not a readable Parquet table"):
        run.read_table(store.LABELS, "labels", "labels.parquet")


def test_a_table_without_a_column_names_it(run):
    run.write_table([{"problem_id": "p"}], pa.schema([("problem_id", pa.string())]), "pairs", "train.parquet")

    with pytest.raises(PoolError, match=r"lacks column.*chosen, rejected"):
        run.read_table(store.PAIRS, "pairs", "train.parquet")


def test_labels_of_an_earlier_version_have_no_parts(run):
    label = Label(candidate_id="c1", problem_id="p1", verdict=Verdict.CORRECT)
    earlier = pa.schema([field for field in store.LABELS if field.name != "parts_json"])
    row = {name: value for name, value in store.label_row(label).items() if name != "parts_json"}
    run.write_table([row], earlier, "labels", "labels.parquet")

    assert [store.label_of(row) for row in run.read_table(store.LABELS, "labels", "labels.parquet")] == [label]


def test_a_stage_without_manifest_is_not_complete(run):
    run.write_table([], store.PAIRS, "pairs", "train.parquet")

    assert run.manifest("pairs") is None


def test_a_manifest_comes_back(run):
    run.finish("pairs", {"fingerprint": "f"})

    assert run.manifest("pairs") == {"fingerprint": "f"}


def test_a_write_that_fails_leaves_the_old_file(run, monkeypatch):
    run.write_json({"v": 1}, "a.json")
    with pytest.raises(TypeError):
        run.write_json({"v": object()}, "a.json")

    assert run.read_json("a.json") == {"v": 1}


def test_remove_is_silent_about_what_is_not_there(run):
    run.remove("nothing", "manifest.json")

    assert not run.exists("nothing")


def test_a_url_works_like_a_path(tmp_path):
    run = store.RunDir((tmp_path / "r").as_uri())
    run.write_json([1], "x.json")

    assert json.loads((tmp_path / "r" / "x.json").read_text(encoding="utf-8")) == [1]


def test_pools_leave_greedy_candidates_out():
    greedy = Candidate(
        candidate_id="c0", task="t", problem_id="p1", generator="g", text="x", sampling=Sampling(temperature=0.0)
    )

    assert store.pools_of([greedy, CANDIDATE]) == {"p1": [CANDIDATE]}


@pytest.mark.parametrize("pack", [lambda data: data, gzip.compress], ids=["plain", "gzip"])
def test_json_lines_with_line_numbers(tmp_path, pack):
    file = tmp_path / ("rows.jsonl" if pack(b"x") == b"x" else "rows.jsonl.gz")
    file.write_bytes(pack(b'{"a": 1}\n\n{"a": 2}\n'))

    assert list(store.read_json_lines(str(file))) == [(1, {"a": 1}), (3, {"a": 2})]


@pytest.mark.parametrize(
    ("content", "match"), [(b'{"a": 1}\n{"a"', r"rows\.jsonl:2: not JSON"), (b"[1]", r":1: must be a JSON object")]
)
def test_a_bad_line_is_named(tmp_path, content, match):
    file = tmp_path / "rows.jsonl"
    file.write_bytes(content)

    with pytest.raises(TaskDataError, match=match):
        list(store.read_json_lines(str(file)))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TaskDataError, match=r"none\.jsonl.*does not exist"):
        list(store.read_json_lines(str(tmp_path / "none.jsonl")))


def test_a_stage_is_copied_with_its_folders_and_manifest(run, tmp_path):
    run.write_bytes(b"table", "labels", "labels.parquet")
    run.write_bytes(b"part", "labels", "parts", "0.parquet")
    run.finish("labels", {"fingerprint": "f"})
    other = store.RunDir(str(tmp_path / "other"))
    other.write_bytes(b"old", "labels", "old.parquet")
    run.copy_stage("labels", other)
    assert other.read_bytes("labels", "parts", "0.parquet") == b"part"
    assert other.read_bytes("labels", "labels.parquet") == b"table"
    assert not other.exists("labels", "old.parquet")
    assert other.manifest("labels") == {"fingerprint": "f"}


def test_a_stage_that_is_not_complete_is_not_copied(run, tmp_path):
    run.write_bytes(b"table", "labels", "labels.parquet")
    with pytest.raises(PoolError, match="not complete"):
        run.copy_stage("labels", store.RunDir(str(tmp_path / "other")))
