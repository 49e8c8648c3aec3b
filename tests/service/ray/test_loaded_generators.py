"""Generators of further runs, loaded when a call names them and let go when nobody does."""

import asyncio

import pytest
from hand_written_run import Clock

from raydebm.errors import ConfigError
from raydebm.service.ray.deployments import GENERATORS_IDLE_S, OnDemand, closed
from raydebm.service.settings import RunSource

SECOND, THIRD, FOURTH = (RunSource(name, "v1", ("ada",)) for name in ("second", "third", "fourth"))


class Idle:
    """A generator that writes nothing."""

    def __init__(self):
        self.is_closed = False

    async def aclose(self):
        self.is_closed = True


@pytest.fixture
def built():
    return []


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def loaded(built, clock):
    def build(source):
        built.append(source.run_dir)
        if source.run_dir == "third":
            raise ConfigError("no recipe")
        return {f"{source.run_dir}-ada": Idle()}

    return OnDemand(build, idle_s=GENERATORS_IDLE_S, drop=closed, clock=clock)


def get(loaded, *sources):
    async def all_of_them():
        return await asyncio.gather(*map(loaded.get, sources))

    return asyncio.run(all_of_them())


def test_calls_at_the_same_time_load_a_run_once(loaded, built):
    first, second = get(loaded, SECOND, SECOND)
    assert first is second
    assert (built, list(loaded.loaded)) == (["second"], [SECOND])


def test_a_run_that_nobody_asks_for_makes_room(loaded, built, clock):
    get(loaded, SECOND)
    clock.now += GENERATORS_IDLE_S + 1
    get(loaded, FOURTH)
    assert list(loaded.loaded) == [FOURTH]
    get(loaded, SECOND)
    assert built == ["second", "fourth", "second"]


def test_generators_that_make_room_are_closed(loaded, clock):
    [idle] = get(loaded, SECOND)
    clock.now += GENERATORS_IDLE_S + 1
    [asked] = get(loaded, FOURTH)
    assert (idle["second-ada"].is_closed, asked["fourth-ada"].is_closed) == (True, False)


def test_a_run_that_cannot_be_loaded_leaves_the_others(loaded):
    get(loaded, SECOND)
    with pytest.raises(ConfigError, match="no recipe"):
        get(loaded, THIRD)
    assert list(loaded.loaded) == [SECOND]
