"""The folder of an export: it is new and holds all or nothing, or what is wrong with it is said with the option."""

import pytest

from raydebm.errors import ConfigError
from raydebm.export.target import fresh_folder


def fail_after_writing(out, error):
    with fresh_folder(out) as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "part.jsonl").write_text("{}")
        (folder / "README.md").write_text("x")
        raise error


def test_an_empty_folder_is_taken(tmp_path):
    with fresh_folder(tmp_path) as folder:
        (folder / "README.md").write_text("x")
    assert [file.name for file in tmp_path.iterdir()] == ["README.md"]


@pytest.mark.parametrize("path", ["file/x", "/proc/x"])
def test_a_folder_that_cannot_be_made_is_named_with_its_option(tmp_path, path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match=r"--out '.*/x' cannot be written"), fresh_folder(tmp_path / path):
        pass


def test_an_export_that_fails_leaves_no_folder(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fail_after_writing(tmp_path / "out", KeyboardInterrupt())
    assert not (tmp_path / "out").exists()


def test_an_export_that_fails_leaves_an_empty_folder_empty(tmp_path):
    with pytest.raises(ZeroDivisionError):
        fail_after_writing(tmp_path, ZeroDivisionError())
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_becomes_full_is_said_with_the_option(tmp_path):
    with pytest.raises(ConfigError, match=r"--out '.*/out' cannot be written: .*No space left"):
        fail_after_writing(tmp_path / "out", OSError(28, "No space left on device"))
