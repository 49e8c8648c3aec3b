"""The public names of the package."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import raydebm


@pytest.mark.parametrize("name", raydebm.__all__)
def test_every_public_name_is_there(name):
    assert getattr(raydebm, name).__name__ == name
    assert name in dir(raydebm)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'raydebm' has no attribute 'best'"):
        _ = raydebm.best


def test_type_checkers_see_the_same_names():
    stub = Path(raydebm.__file__).with_suffix(".pyi")
    imports = [node for node in ast.parse(stub.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname: node.module for node in imports for alias in node.names}
    assert seen == raydebm._MODULE_OF
    assert sorted(seen) == sorted(raydebm.__all__)


def test_the_package_alone_loads_neither_ray_nor_torch():
    code = "import sys, raydebm; print(sorted({'ray', 'torch', 'pyarrow', 'pydantic'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
