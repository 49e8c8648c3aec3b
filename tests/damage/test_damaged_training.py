"""Training with processes killed; ``make damage`` does the same at length."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the module beside this one

from damaged_training import Trainings

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    return Trainings(tmp_path_factory.mktemp("trainings"))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_weights_are_the_same_to_the_last_bit_whatever_was_killed(trainings, seed):
    damage = trainings.damaged(seed, kills=["worker", "driver"])

    assert damage.wrong == ()
    assert sum(damage.kills.values()) == 2
