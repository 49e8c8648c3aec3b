"""Generation in a storm with processes killed; ``make damage`` does the same at length."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the module beside this one

from damaged_generation import Storm, weather

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_row_is_there_and_only_what_was_in_flight_is_paid_twice(tmp_path, seed):
    damage = weather(Storm(seed=seed, num_requests=600), tmp_path, kills=["worker", "driver"])

    assert damage.wrong == ()
    assert sum(damage.kills.values()) == 2
