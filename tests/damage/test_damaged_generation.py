"""Generation in a storm with processes killed; ``make damage`` does the same at length."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside this one

from damaged_generation import Storm, weather
from victims import in_turn, nodes_for

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_row_is_there_and_only_what_was_in_flight_is_paid_twice(tmp_path, seed):
    with nodes_for(seed, log=tmp_path / "nodes.log") as nodes:
        kills = in_turn(2, nodes=nodes)
        damage = weather(Storm(seed=seed, num_requests=600), tmp_path, kills=kills, nodes=nodes)

    assert damage.wrong == ()
    assert sum(damage.kills.values()) == 2
