"""Pools written by hand, as in the tests of the evaluation."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluation"))  # for hand_made

import hand_made


@pytest.fixture(scope="session")
def make_pool():
    return hand_made.make_pool


@pytest.fixture(scope="session")
def make_item():
    return hand_made.make_item
