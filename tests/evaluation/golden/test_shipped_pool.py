"""Calibration and evaluation give the same numbers as ever, but for how a machine rounds."""

import json
import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for shipped_pool
import shipped_pool


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return shipped_pool.results(tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("name", shipped_pool.FILES)
def test_the_shipped_pool_gives_the_golden_numbers(results, name):
    golden = json.loads((shipped_pool.HERE / name).read_text(encoding="utf-8"))

    assert list(differences(json.loads(results[name]), golden)) == []


def differences(value, golden, where=""):
    """Places where JSON trees differ; numbers by more than a millionth, to which the fit of the posterior ends."""
    if isinstance(value, dict) and isinstance(golden, dict) and value.keys() == golden.keys():
        for key in golden:
            yield from differences(value[key], golden[key], f"{where}.{key}")
    elif isinstance(value, list) and isinstance(golden, list) and len(value) == len(golden):
        for index, pair in enumerate(zip(value, golden, strict=True)):
            yield from differences(*pair, f"{where}.{index}")
    elif isinstance(value, float) and isinstance(golden, float):
        if not math.isclose(value, golden, rel_tol=1e-6, abs_tol=1e-12):
            yield where, value, golden
    elif value != golden:
        yield where, value, golden


def test_another_number_or_key_is_found():
    golden = {"a": [1.0, {"b": 2}]}

    assert list(differences({"a": [1.0 + 1e-9, {"b": 2}]}, golden)) == []
    assert list(differences({"a": [1.001, {"b": 3}]}, golden)) == [(".a.0", 1.001, 1.0), (".a.1.b", 3, 2)]
    assert list(differences({"a": [1.0, {}]}, golden)) == [(".a.1", {}, {"b": 2})]
