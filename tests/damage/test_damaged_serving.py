"""A loaded service with processes killed; ``make damage`` does the same at length."""

import asyncio
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the module beside this one

from damaged_serving import UPDATE, damaged
from loaded_service import NODE, SERVICE, service

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with service(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.mark.parametrize(
    ("seed", "victims"),
    [(0, ["scorer", "controller"]), (1, ["ingress", "generator", NODE]), (2, ["checker", "proxy", UPDATE])],
)
def test_answers_are_right_and_only_those_in_flight_are_lost(served, seed, victims):
    random.Random(seed).shuffle(victims)
    damage = asyncio.run(damaged(served, seed=seed, victims=victims, num_clients=8, window_s=2.0))

    assert damage.wrong == ()
    assert damage.windows[-1].num_answered > 0


def test_64_clients_of_a_service_that_is_killed_spend_no_more_than_the_ceiling(tmp_path):
    """As much as 266 candidates cost, and the service is killed after a second or two of them."""
    with service(tmp_path, ceiling_usd=8.0) as served:
        damage = asyncio.run(damaged(served, seed=3, victims=[SERVICE], num_clients=64, window_s=1.0))

        assert damage.wrong == ()
        assert 0 < served.sold_usd <= served.spent_usd() <= 8.0
