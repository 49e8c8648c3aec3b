"""Rows of benchmarks from files, folders and the hub."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydebm.errors import TaskDataError
from raydebm.records import Gold, Problem
from raydebm.tasks.sources import distinct, file_rows, hub_name, local_file, split_rows

ROWS = [{"question": "One?", "level": "1"}, {"question": "Two,\nthree?", "level": "2"}]


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def write_parquet(path):
    pq.write_table(pa.Table.from_pylist(ROWS), path)


FORMS = {
    "a.jsonl": lambda path: path.write_bytes(json_lines(ROWS)),
    "a.jsonl.gz": lambda path: path.write_bytes(gzip.compress(json_lines(ROWS))),
    "a.json": lambda path: path.write_text(json.dumps(ROWS)),
    "a.json.gz": lambda path: path.write_bytes(gzip.compress(json.dumps(ROWS).encode())),
    "a.csv": lambda path: path.write_text('question,level\nOne?,1\n"Two,\nthree?",2\n'),
    "a.parquet": write_parquet,
}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_every_kind_of_file_gives_the_same_rows(tmp_path, name):
    FORMS[name](tmp_path / name)
    assert [dict(row) for _, row in file_rows(tmp_path / name)] == ROWS


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b"{", "cannot be read as json"),
        ("a.json.gz", gzip.compress(b"[]" * 100, mtime=0)[:-12], "cannot be read as json"),
        ("a.parquet", b"no parquet", "cannot be read as parquet"),
        ("a.json", b"[1]", r"a\.json row 0: must be an object, got int"),
        ("a.jsonl", b"[1]\n", "must be a JSON object"),
        ("a.txt", b"", r"unknown kind; known endings: \.jsonl, \.json"),
    ],
)
def test_unreadable_files_are_data_errors(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TaskDataError, match=message):
        list(file_rows(tmp_path / name))


def test_a_folder_gives_the_first_name_that_it_has(tmp_path):
    for name in ("b.jsonl", "c.jsonl"):
        (tmp_path / name).write_text("")
    assert local_file(str(tmp_path), "", names=["a.jsonl", "b.jsonl", "c.jsonl"], otherwise="").name == "b.jsonl"


def test_a_folder_without_any_lists_the_names(tmp_path):
    with pytest.raises(TaskDataError, match=r"has none of a\.jsonl, test\.jsonl"):
        local_file(str(tmp_path), "test", names=["a.jsonl", "{split}.jsonl"], otherwise="")


@pytest.mark.parametrize(
    ("source", "expected"), [(None, "own/set"), ("hub:", "own/set"), ("hub:a/b", "a/b"), ("a/b", None)]
)
def test_hub_names(source, expected):
    assert hub_name(source, "own/set") == expected


def test_split_rows_reads_a_folder_or_the_hub(monkeypatch, tmp_path):
    monkeypatch.setattr("raydebm.tasks.sources.hub_rows", lambda *names, split: [(" ".join([*names, split]), ROWS[0])])
    (tmp_path / "problems_test.jsonl").write_bytes(json_lines(ROWS[:1]))
    assert [where for where, _ in split_rows("test", str(tmp_path), dataset="a/b")] == ["problems_test.jsonl:1"]
    assert [where for where, _ in split_rows("test", None, dataset="a/b", configuration="c")] == ["a/b c test"]


def test_the_same_problem_counts_once():
    pairs = [
        (Problem(task="t", problem_id=name, prompt=name), Gold(task="t", problem_id=name, value={})) for name in "aba"
    ]
    assert [problem.problem_id for problem, _ in distinct(pairs)] == ["a", "b"]
