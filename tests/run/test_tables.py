"""Tables: what goes in comes out, and every column is where earlier versions had it."""

import math
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pytest

from raydebm.errors import PoolError
from raydebm.records import (
    Candidate,
    CandidateScore,
    ConstraintReport,
    GenerationRequest,
    Gold,
    Label,
    Pair,
    Problem,
    Sampling,
    Verdict,
    Violation,
)
from raydebm.run.codec import Codec
from raydebm.run.directory import RunDir
from raydebm.run.folder import Folder, StoredTable
from raydebm.run.tables import (
    CANDIDATES,
    ENERGIES,
    GOLDS,
    LABELS,
    PAIRS,
    PROBLEMS,
    REPORTS,
    REQUESTS,
    SCORES,
    EnergyRow,
    SplitProblem,
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


PROBLEM = Problem(task="t", problem_id="p", prompt="q", data={"names": ["A"]}, difficulty="2 people")


@pytest.mark.parametrize(
    ("codec", "record"),
    [
        (CANDIDATES, CANDIDATE),
        (
            CANDIDATES,
            Candidate(candidate_id="c2", task="t", problem_id="p1", generator="g", text=None, error="timeout"),
        ),
        (LABELS, Label(candidate_id="c1", problem_id="p1", verdict=Verdict.UNLABELED, reason="checker died")),
        (
            LABELS,
            Label(candidate_id="c1", problem_id="p1", verdict=Verdict.INCORRECT, severity=5, reason="runtime_error"),
        ),
        (
            LABELS,
            Label(
                candidate_id="c1", problem_id="p1", verdict=Verdict.INCORRECT, violation_score=0.25,
                parts={"budget": 0.5, "diversity": 0.0},
            ),
        ),
        (REPORTS, REPORT),
        (REPORTS, ConstraintReport(candidate_id="c1", answer=None, vote_key=None, penalty=math.inf)),
        (REPORTS, ConstraintReport(candidate_id="c1", answer="1", vote_key="1", penalty=0.0, proof=True, note="n")),
        (ENERGIES, EnergyRow(candidate_id="c1", members=(1.5, -2.0), num_tokens=7, num_truncated=1, problem_read=0.5)),
        (ENERGIES, EnergyRow(candidate_id="c1", members=None, error="NaN")),
        (PAIRS, Pair(problem_id="p", chosen="a", rejected="b")),
        (SCORES, CandidateScore(candidate_id="a", name="rm", score=1.5)),
        (SCORES, CandidateScore(candidate_id="b", name="rm", score=None, error="too long")),
        (GOLDS, Gold(task="t", problem_id="p", value={"answer": "18"})),
        (PROBLEMS, SplitProblem(problem=PROBLEM, split="train")),
        (
            REQUESTS,
            GenerationRequest(
                task="t", problem_id="p", generator="g", messages=({"role": "user", "content": "hi"},),
                sampling=Sampling(stop=("END",)), seed=3, pass_index=2, response_format='{"type": "json_object"}',
            ),
        ),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_record_survives_its_table(tmp_path, codec, record):
    folder = Folder(str(tmp_path))
    assert folder.write_records(codec, [record], "stage", "t.parquet") == 1

    assert folder.read_records(codec, "stage", "t.parquet") == (record,)


def test_another_record_in_a_record_gives_its_columns_in_its_place():
    assert PROBLEMS.schema.names == ["task", "problem_id", "prompt", "data_json", "difficulty", "kind", "split"]
    assert PROBLEMS.row(SplitProblem(problem=PROBLEM, split="train"))["data_json"] == '{"names":["A"]}'


def test_small_integers_have_32_bits_and_the_others_64():
    assert CANDIDATES.schema.field("pass_index").type == pa.int32()
    assert CANDIDATES.schema.field("seed").type == pa.int64()


def test_texts_of_a_tuple_are_json_and_numbers_a_list():
    assert CANDIDATES.row(CANDIDATE)["stop_json"] == '["\\n\\n"]'
    assert ENERGIES.row(EnergyRow(candidate_id="c", members=(1.0, 2.0)))["members"] == [1.0, 2.0]


def test_adapters_that_were_not_asked_leave_their_energies_open(tmp_path):
    row, folder = EnergyRow(candidate_id="c", members=(1.0, None, 3.0)), Folder(str(tmp_path))
    folder.write_records(ENERGIES, [row], "t.parquet")

    assert folder.read_records(ENERGIES, "t.parquet") == (row,)
    assert row.energies.members == (1.0, 3.0)


def test_a_column_that_is_missing_or_null_gives_the_default():
    row = {"candidate_id": "a", "name": "rm", "score": 1.5}

    assert SCORES.record(row) == SCORES.record(row | {"parts_json": None, "error": None})
    assert SCORES.record(row).parts == {}


def test_a_column_without_a_default_must_be_there():
    with pytest.raises(KeyError, match="name"):
        SCORES.record({"candidate_id": "a", "score": 1.5})
    assert SCORES.required == ["candidate_id", "name", "score"]


@dataclass(frozen=True)
class Named:
    name: str
    size: int = 0


NAMED = Codec(Named)
PARTS = ("names", "names.parquet")
RECORDS = [Named(f"n{number}", number) for number in range(2500)]


@pytest.fixture
def run(tmp_path):
    return RunDir(str(tmp_path / "run"))


@pytest.fixture
def table(run):
    run.write_records(NAMED, iter(RECORDS), *PARTS)
    return StoredTable(run, NAMED, PARTS)


def test_records_come_in_their_order_and_more_than_once(table):
    assert list(table) == RECORDS
    assert list(table) == RECORDS
    assert len(table) == 2500


def test_a_choice_is_made_while_reading(table):
    chosen = table.where(lambda record: record.size >= 2498)

    assert list(chosen) == RECORDS[2498:]
    assert len(chosen) == 2


def test_tables_have_the_rows_asked_for_also_across_row_groups(run):
    with run.open_table(NAMED, *PARTS) as writer:
        for first in range(0, 25_000, 5000):
            writer.write(pa.table({"name": ["n"] * 5000, "size": list(range(first, first + 5000))}))

    sizes = [table["size"].to_pylist() for table in StoredTable(run, NAMED, PARTS).tables(9000)]

    assert list(map(len, sizes)) == [9000, 9000, 7000]
    assert list(chain(*sizes)) == list(range(25_000))


def test_the_values_of_one_column(table):
    assert list(table.column("name")) == [record.name for record in RECORDS]


def test_a_folder_of_part_files_is_one_table_by_name(run):
    for number in (1, 0):
        run.write_records(NAMED, [Named(f"n{number}")], *PARTS, f"{number}.parquet")

    table = StoredTable(run, NAMED, PARTS)

    assert [record.name for record in table] == ["n0", "n1"]
    assert len(table) == 2


def test_a_table_whose_pages_are_damaged_is_named(run, table, tmp_path):
    file = tmp_path / "run" / "names" / "names.parquet"
    content = bytearray(file.read_bytes())
    content[4:2000] = bytes(1996)
    file.write_bytes(content)

    with pytest.raises(PoolError, match=r"names\.parquet is not a readable Parquet table"):
        list(table)


def test_nothing_is_replaced_when_writing_fails(run, table):
    def broken():
        yield Named("new")
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError, match="the source is gone"):
        run.write_records(NAMED, broken(), *PARTS)

    assert list(table) == RECORDS
    assert run.names("names") == ["names.parquet"]


def test_a_written_table_replaces_what_was_read_before(run, table):
    assert len(run.read_records(NAMED, *PARTS)) == 2500

    run.write_records(NAMED, [Named("new")], *PARTS)

    assert run.read_records(NAMED, *PARTS) == (Named("new"),)
