"""The budgets of benchmarks/house.py: the house may shrink, and it may not grow unnoticed."""

import importlib.util
import sys
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).parents[2] / "benchmarks" / "house.py"
_SPEC = importlib.util.spec_from_file_location(_SCRIPT.stem, _SCRIPT)
house = importlib.util.module_from_spec(_SPEC)
sys.modules[_SCRIPT.stem] = house
_SPEC.loader.exec_module(house)


@pytest.fixture(scope="module")
def measured():
    return house.measured()


def test_everything_that_is_measured_has_a_budget(measured):
    assert set(measured) == set(house.BUDGETS)


@pytest.mark.parametrize("name", house.BUDGETS)
def test_a_budget_is_kept(measured, name):
    assert measured[name] <= house.BUDGETS[name], f"{name}: {measured[name]:,}; see the note at BUDGETS"
