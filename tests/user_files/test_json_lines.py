"""JSON-lines files: line numbers, and messages that name them."""

import gzip

import pytest

from raydebm.errors import TaskDataError
from raydebm.user_files import read_json_lines


@pytest.mark.parametrize("pack", [lambda data: data, gzip.compress], ids=["plain", "gzip"])
def test_json_lines_with_line_numbers(tmp_path, pack):
    file = tmp_path / ("rows.jsonl" if pack(b"x") == b"x" else "rows.jsonl.gz")
    file.write_bytes(pack(b'{"a": 1}\n\n{"a": 2}\n'))

    assert list(read_json_lines(str(file))) == [(1, {"a": 1}), (3, {"a": 2})]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b'{"a": 1}\n{"a"', r"rows\.jsonl:2: not JSON"),
        (b"[1]", r":1: must be a JSON object"),
        (b'{"a": ' + b"9" * 5000 + b"}", r":1: not JSON: Exceeds the limit"),
        (b"[" * 20_000, r":1: not JSON: maximum recursion depth"),
    ],
    ids=["cut off", "a list", "endless number", "endless brackets"],
)
def test_a_bad_line_is_named(tmp_path, content, match):
    file = tmp_path / "rows.jsonl"
    file.write_bytes(content)

    with pytest.raises(TaskDataError, match=match):
        list(read_json_lines(str(file)))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TaskDataError, match=r"none\.jsonl.*does not exist"):
        list(read_json_lines(str(tmp_path / "none.jsonl")))
