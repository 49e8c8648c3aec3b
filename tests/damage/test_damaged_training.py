"""Training with processes killed; ``make damage`` does the same at length."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside this one

from damaged_training import Trainings
from victims import in_turn, nodes_for

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    return Trainings(tmp_path_factory.mktemp("trainings"))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_weights_are_the_same_to_the_last_bit_whatever_was_killed(trainings, seed, tmp_path):
    with nodes_for(seed, log=tmp_path / "nodes.log") as nodes:
        damage = trainings.damaged(seed, kills=in_turn(2, nodes=nodes), nodes=nodes)

    assert damage.wrong == ()
    assert sum(damage.kills.values()) == 2
