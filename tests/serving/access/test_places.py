"""Where the parts of one request run: one place each, and never fewer than the request's own."""

import asyncio
from functools import partial

import pytest

from raydebm.serving.access.places import RequestPlaces
from raydebm.serving.access.request_limits import Admission, KeyUse
from raydebm.serving.settings.app_args import LimitArgs


class Office:
    """Requests of several parts that take a second each, with at most so many places for all of them."""

    def __init__(self, max_running, *, max_open=None):
        self.admission = Admission(LimitArgs(max_running=max_running, max_waiting=0))
        self.use = KeyUse(max_open=max_open, num_open=1)
        self.running, self.most, self.begun = 0, 0, []

    async def part(self, name, failing=()):
        self.begun.append(name)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(1)
            if name in failing:
                raise ZeroDivisionError(name)
        finally:
            self.running -= 1
        return name

    async def request(self, name, count, most=32, failing=()):
        async with self.admission.place():
            parts = [partial(self.part, f"{name}{index}", failing) for index in range(count)]
            return await RequestPlaces(self.use, self.admission).run(parts, most)

    @property
    def taken(self):
        return self.admission.num_running, self.use.num_open


@pytest.mark.parametrize(
    ("max_running", "max_open", "asked", "most"),
    [(9, None, 4, 4), (3, None, 8, 3), (9, 2, 8, 2), (1, None, 8, 1), (9, 1, 8, 1), (9, None, 1, 1)],
)
def test_so_many_parts_run_as_there_are_places(run_virtually, max_running, max_open, asked, most):
    office = Office(max_running, max_open=max_open)
    results = run_virtually(office.request("a", 8, asked))
    assert (results, office.most) == ([f"a{index}" for index in range(8)], most)
    assert office.taken == (0, 1)  # the key's own place was there before


def test_parts_begin_in_their_order(run_virtually):
    office = Office(3)
    run_virtually(office.request("a", 7))
    assert office.begun == [f"a{index}" for index in range(7)]


def test_a_part_takes_a_place_for_as_long_as_it_runs(run_virtually):
    office, taken = Office(8), []

    async def scene():
        work = asyncio.create_task(office.request("a", 5, 3))
        for _ in range(3):
            await asyncio.sleep(0.5)
            taken.append(office.taken)
            await asyncio.sleep(0.5)
        await work

    run_virtually(scene())
    assert taken == [(3, 3), (2, 2), (0, 1)]  # three parts, then the last two


def test_requests_that_hold_all_places_do_not_wait_for_each_other(run_virtually):
    office = Office(2)

    async def both():
        return await asyncio.gather(office.request("a", 3), office.request("b", 3))

    assert [len(results) for results in run_virtually(both())] == [3, 3]
    assert (office.most, office.taken) == (2, (0, 1))


def test_of_many_parts_one_stands_in_line_so_that_others_get_their_turn(run_virtually):
    office = Office(2)
    office.admission = Admission(LimitArgs(max_running=2, max_waiting=1))

    async def scene():
        first = asyncio.create_task(office.request("a", 6))
        await asyncio.sleep(0.5)
        await asyncio.gather(first, office.request("b", 1))

    run_virtually(scene())
    assert office.begun == ["a0", "a1", "a2", "a3", "a4", "b0", "a5"]  # a3 stood before b0, and a4 went on in a's own


def test_a_part_that_waits_keeps_no_request_from_waiting(run_virtually):
    office = Office(1)

    async def scene():
        work = asyncio.create_task(office.request("a", 2))
        await asyncio.sleep(0.5)
        waiting = office.admission.num_waiting
        await work
        return waiting

    assert run_virtually(scene()) == 0


def test_where_a_part_fails_the_others_are_cancelled_and_their_places_given_back(run_virtually):
    office = Office(3)

    async def scene():
        with pytest.raises(ExceptionGroup) as caught:
            await office.request("a", 9, failing=("a1",))
        return [str(error) for error in caught.value.exceptions]

    assert run_virtually(scene()) == ["a1"]
    assert len(office.begun) < 9
    assert (office.running, office.taken) == (0, (0, 1))


@pytest.mark.parametrize("after_s", [0, 0.5, 1, 1.5, 2.5])
def test_a_request_that_is_cancelled_gives_all_places_back(run_virtually, after_s):
    office = Office(3, max_open=3)

    async def scene():
        tasks = [asyncio.create_task(office.request(name, 5)) for name in "ab"]
        await asyncio.sleep(after_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run_virtually(scene())
    assert (office.running, office.taken) == (0, (0, 1))


def test_a_key_without_a_free_place_takes_none_of_the_services(run_virtually):
    office = Office(3, max_open=1)

    async def scene():
        work = asyncio.create_task(office.request("a", 3))
        await asyncio.sleep(0.5)
        taken = office.admission.num_running
        await work
        return taken

    assert run_virtually(scene()) == 1
