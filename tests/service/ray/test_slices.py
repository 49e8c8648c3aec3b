"""Work of concurrent calls in slices of about the same time, in turn by call."""

import asyncio
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydebm.service.ray.deployments import FIRST_CHARS, SliceQueue

STEADY_S = 0.04
"""Time of an item at which slices neither grow nor shrink."""


class Recorder:
    """Runs slices at a stated speed, by a clock of its own, and keeps them."""

    def __init__(self, *, seconds_per_item=0.0):
        self.slices, self.now, self.seconds_per_item = [], 0.0, seconds_per_item
        self.go = threading.Event()
        self.go.set()

    def __call__(self, parts):
        self.go.wait(60)
        self.slices.append([list(part) for part in parts])
        self.now += self.seconds_per_item * sum(map(len, parts))
        return [[f"{text}!" for text in part] for part in parts]

    @property
    def order(self):
        return [text for parts in self.slices for part in parts for text in part]


def queue_of(recorder, *, size=1):
    return SliceQueue(recorder, size=lambda text: size, clock=lambda: recorder.now)


def named(name, count):
    return [f"{name}{index}" for index in range(count)]


async def submitted_while_busy(recorder, queue, *calls):
    """Results of calls that all wait while an item "first" is in work."""
    recorder.go.clear()
    first = asyncio.create_task(queue.submit(["first"]))
    await asyncio.sleep(0.01)
    tasks = [asyncio.create_task(queue.submit(work)) for work in calls]
    await asyncio.sleep(0.01)
    recorder.go.set()
    await first
    return await asyncio.gather(*tasks)


def test_a_small_call_waits_for_one_slice_of_a_large_one():
    recorder = Recorder(seconds_per_item=STEADY_S)
    queue = queue_of(recorder, size=FIRST_CHARS)  # one item a slice
    asyncio.run(submitted_while_busy(recorder, queue, named("big", 100), named("small", 1)))
    assert recorder.order[:3] == ["first", "big0", "small0"]


@pytest.mark.parametrize(("seconds_per_item", "most"), [(0.005, 10), (0.1, 1)])
def test_slices_shrink_until_they_take_their_time(seconds_per_item, most):
    recorder = Recorder(seconds_per_item=seconds_per_item)
    asyncio.run(queue_of(recorder).submit(named("a", 2000)))
    sizes = [len(parts[0]) for parts in recorder.slices]
    assert sizes[0] == 256
    assert max(sizes[-3:-1]) <= most


def test_single_slow_texts_do_not_make_slices_small_for_good():
    recorder = Recorder(seconds_per_item=1.0)
    queue = queue_of(recorder)

    async def work():
        for _ in range(20):
            await queue.submit(["slow"])
        recorder.seconds_per_item = 0.0
        await queue.submit(named("a", 100))

    asyncio.run(work())
    assert len(recorder.slices[20][0]) == 100


def test_what_breaks_a_slice_is_raised_by_its_calls_only():
    def run(parts):
        if any("bad" in part for part in parts):
            raise ZeroDivisionError
        return parts

    queue = SliceQueue(run, size=lambda text: FIRST_CHARS)

    async def work():
        both = (queue.submit(texts) for texts in (["bad", "x"], ["good", "y"]))
        return await asyncio.gather(*both, return_exceptions=True)

    bad, good = asyncio.run(work())
    assert isinstance(bad, ZeroDivisionError)
    assert good == ["good", "y"]


def test_the_rest_of_a_cancelled_call_is_not_done():
    recorder = Recorder()
    queue = queue_of(recorder, size=FIRST_CHARS)

    async def work():
        recorder.go.clear()
        gone = asyncio.create_task(queue.submit(named("gone", 50)))
        await asyncio.sleep(0.01)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        recorder.go.set()
        return await queue.submit(["next"])

    assert asyncio.run(work()) == ["next!"]
    assert recorder.order == ["gone0", "next"]


@settings(max_examples=30)
@given(
    calls=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), min_size=1, max_size=12),
    chars=st.integers(1, FIRST_CHARS),
)
def test_everything_is_done_once_whatever_comes_and_goes(calls, chars):
    recorder = Recorder(seconds_per_item=0.01)
    queue = queue_of(recorder, size=chars)

    async def work():
        tasks = [asyncio.create_task(queue.submit(named(f"{index}-", count))) for index, (count, _) in enumerate(calls)]
        await asyncio.sleep(0)
        for task, (_, fate) in zip(tasks, calls, strict=True):
            if fate == 0:
                task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(work())
    for index, (result, (count, _)) in enumerate(zip(results, calls, strict=True)):
        if not isinstance(result, asyncio.CancelledError):
            assert result == [f"{text}!" for text in named(f"{index}-", count)]
    assert len(set(recorder.order)) == len(recorder.order)
    assert not queue._waiting
