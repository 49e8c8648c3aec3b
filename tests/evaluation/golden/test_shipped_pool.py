"""Calibration and evaluation give the same numbers as ever, to the last digit."""

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
    golden = (shipped_pool.HERE / name).read_text(encoding="utf-8")

    assert results[name].splitlines() == golden.splitlines()
