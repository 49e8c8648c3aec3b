"""The folder of an export: it is new, or what is wrong with it is said with the option."""

from pathlib import Path

import pytest

from raydebm.errors import ConfigError
from raydebm.export.target import fresh_folder


def test_an_empty_folder_is_taken(tmp_path):
    assert fresh_folder(tmp_path) == tmp_path


@pytest.mark.parametrize("path", ["file/x", "/proc/x"])
def test_a_folder_that_cannot_be_made_is_named_with_its_option(tmp_path, path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match=r"--out '.*/x' cannot be written"):
        fresh_folder(tmp_path / Path(path))
