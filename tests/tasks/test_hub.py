"""Data sets of a hub, read as the files that they are: from a server that answers as the hub does."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_server import CONVERTED, HubServer

from raydebm.errors import TaskDataError
from raydebm.tasks.hub_files import converted_splits, splits_of
from raydebm.tasks.sources import hub_rows

ROWS = [{"question": f"q{index}", "answer": f"#### {index}"} for index in range(6)]


def parquet(rows):
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The server, and a client with an empty cache that talks to it alone."""
    server = HubServer()
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    for name, value in {"HF_HUB_OFFLINE": False, "HF_HUB_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    yield server
    server.close()


def questions(*arguments, **settings):
    return [row["question"] for _, row in hub_rows(*arguments, **settings)]


CARD = b"""---
configs:
- config_name: main
  default: true
  data_files:
  - split: train
    path: main/train-*
  - split: test
    path: main/test-*
- config_name: socratic
  data_files:
  - {split: train, path: socratic/train-*}
---
# Questions
"""


@pytest.fixture
def carded(hub):
    hub.repositories["a/b"] = {
        "main": {
            "README.md": CARD,
            "main/train-00000-of-00002.parquet": parquet(ROWS[:2]),
            "main/train-00001-of-00002.parquet": parquet(ROWS[2:3]),
            "main/test-00000-of-00001.parquet": parquet(ROWS[3:4]),
            "socratic/train-00000-of-00001.parquet": parquet(ROWS[4:]),
        }
    }
    return hub


def test_the_card_says_which_files_are_a_split(carded):
    assert questions("a/b", "main", split="train") == ["q0", "q1", "q2"]
    assert questions("a/b", "socratic", split="train") == ["q4", "q5"]


def test_what_was_downloaded_is_there_without_a_network(carded, monkeypatch):
    questions("a/b", "main", split="test")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    asked = len(carded.requests)
    assert questions("a/b", "main", split="test") == ["q3"]
    assert len(carded.requests) == asked


def test_a_data_set_that_needs_a_script_is_read_from_the_hubs_copy(hub):
    hub.repositories["a/b"] = {
        "main": {"README.md": b"# no metadata\n", "b.py": b"raise SystemExit('never run')"},
        CONVERTED: {
            "default/train/0000.parquet": parquet(ROWS[:1]),
            "default/train/0001.parquet": parquet(ROWS[1:2]),
            "default/test/0000.parquet": parquet(ROWS[2:3]),
        },
    }
    assert questions("a/b", split="train") == ["q0", "q1"]


@pytest.mark.parametrize("content", [lines(ROWS[:2]), json.dumps(ROWS[:2]).encode()], ids=["lines", "list"])
def test_a_json_file_is_a_list_or_an_object_a_line(hub, content):
    hub.repositories["a/b"] = {"main": {"all.json": content}}
    assert questions("a/b", split="train") == ["q0", "q1"]


def test_without_a_split_all_follow_each_other(hub):
    hub.repositories["a/b"] = {"main": {"train.jsonl": lines(ROWS[:1]), "test.jsonl": lines(ROWS[1:2])}}
    assert [where for where, _ in hub_rows("a/b")] == ["a/b test row 0", "a/b train row 0"]


def test_a_data_set_that_is_not_there_says_what_else_to_do(hub):
    with pytest.raises(TaskDataError, match=r"cannot load no/set: (.|\n)*404(.|\n)*Check the network, or use a file"):
        hub_rows("no/set", split="test", otherwise="use a file")


def test_a_split_that_is_not_there_is_named_with_those_that_are(carded):
    with pytest.raises(TaskDataError, match="a/b main has no split 'dev' on the hub; it has train, test; use a file"):
        hub_rows("a/b", "main", split="dev", otherwise="use a file")


def test_a_torn_parquet_file_is_a_data_error(hub):
    hub.repositories["a/b"] = {"main": {"train.parquet": parquet(ROWS)[:-20]}}
    with pytest.raises(TaskDataError, match=r"train\.parquet' cannot be read as parquet"):
        questions("a/b", split="train")


@pytest.mark.parametrize(
    ("names", "configuration", "expected"),
    [
        (["train.csv", "test.csv", "x.py"], None, {"train": ["train.csv"], "test": ["test.csv"]}),
        (["one.json", "x/dataset_info.json"], None, {"train": ["one.json"]}),
        (["algebra/train-0.parquet", "geometry/train-0.parquet"], "algebra", {"train": ["algebra/train-0.parquet"]}),
        (["validation.csv", "train.csv"], "validation", {"validation": ["validation.csv"]}),
        (["constraint.csv", "train.csv"], None, {"train": ["train.csv"]}),
        (["notes.md"], None, {}),
    ],
)
def test_without_a_card_the_names_of_the_files_say_the_split(names, configuration, expected):
    assert splits_of(names, {}, configuration) == expected


@pytest.mark.parametrize(
    ("data_files", "expected"),
    [
        ("*.jsonl", {"train": ["a.jsonl", "b.jsonl"]}),
        (["b.jsonl"], {"train": ["b.jsonl"]}),
        ([{"split": "2ppl", "path": ["a.jsonl"]}, {"split": "3ppl", "path": "b.jsonl"}],
         {"2ppl": ["a.jsonl"], "3ppl": ["b.jsonl"]}),
        ([{"split": "test", "path": "gone.jsonl"}], {}),
    ],
)  # fmt: skip
def test_a_card_may_name_files_in_several_ways(data_files, expected):
    card = {"configs": [{"config_name": "default", "data_files": data_files}]}
    assert splits_of(["a.jsonl", "b.jsonl"], card, None) == expected


def test_the_hubs_copy_of_one_configuration_needs_no_name():
    names = ["all/partial-train/0000.parquet", "all/test/0000.parquet", "index.json"]
    assert converted_splits(names, None) == {
        "train": ["all/partial-train/0000.parquet"],
        "test": ["all/test/0000.parquet"],
    }
