"""Turns in the scorer: by key, then by request, in slices of about the same time."""

import asyncio
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydebm.serving.access.fairness import FIRST_CHARS, FairQueue

STEADY_S = 0.04
"""Time of an item at which slices neither grow nor shrink."""


class Recorder:
    """Does slices at a stated speed, in a clock of its own, and keeps them."""

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


def queue_of(recorder, *, shared=True, size=1):
    return FairQueue(recorder, size=lambda text: size, shared=shared, clock=lambda: recorder.now)


def named(name, count):
    return [f"{name}{index}" for index in range(count)]


async def submitted_while_busy(recorder, queue, *calls):
    """Results of calls (work, caller, request) that all wait while an item "first" is in work."""
    recorder.go.clear()
    first = asyncio.create_task(queue.submit(["first"], caller="x", request="x"))
    await asyncio.sleep(0.01)
    tasks = [asyncio.create_task(queue.submit(work, caller=caller, request=request)) for work, caller, request in calls]
    await asyncio.sleep(0.01)
    recorder.go.set()
    await first
    return await asyncio.gather(*tasks)


def test_results_come_back_in_the_order_of_the_work():
    recorder = Recorder()
    queue = queue_of(recorder, size=FIRST_CHARS)

    async def work():
        return await asyncio.gather(
            *(queue.submit(named(name, 5), caller="k", request=name) for name in "abc"),
            queue.submit([], caller="k", request="none"),
        )

    assert asyncio.run(work()) == [[f"{text}!" for text in named(name, 5)] for name in "abc"] + [[]]


def test_a_small_request_waits_for_one_slice_of_a_large_one():
    recorder = Recorder(seconds_per_item=STEADY_S)
    queue = queue_of(recorder, size=FIRST_CHARS)  # one item a slice
    asyncio.run(
        submitted_while_busy(recorder, queue, (named("big", 100), "k", "big"), (named("small", 1), "k", "small"))
    )
    assert recorder.order[:3] == ["first", "big0", "small0"]


@pytest.mark.parametrize("caller", ["k", "another key"])
def test_a_request_that_comes_during_a_slice_is_served_before_those_in_it(caller):
    recorder = Recorder(seconds_per_item=STEADY_S)
    queue = queue_of(recorder, size=FIRST_CHARS)  # one item a slice

    async def work():
        recorder.go.clear()
        big = asyncio.create_task(queue.submit(named("big", 3), caller="k", request="big"))
        await asyncio.sleep(0.01)  # big0 is in work
        small = asyncio.create_task(queue.submit(named("small", 2), caller=caller, request="small"))
        await asyncio.sleep(0.01)
        recorder.go.set()
        await asyncio.gather(big, small)

    asyncio.run(work())
    assert recorder.order == ["big0", "small0", "big1", "small1", "big2"]


def test_those_of_a_slice_keep_their_order_behind_who_came_meanwhile():
    recorder = Recorder(seconds_per_item=STEADY_S)
    queue = queue_of(recorder, size=FIRST_CHARS // 2)  # two items a slice

    async def work():
        recorder.go.clear()
        calls = [queue.submit(named(name, 4), caller="k", request=name) for name in "abc"]
        tasks = [asyncio.create_task(call) for call in calls]
        await asyncio.sleep(0.01)  # a0 and b0 are in work
        tasks.append(asyncio.create_task(queue.submit(["new"], caller="k", request="new")))
        await asyncio.sleep(0.01)
        recorder.go.set()
        await asyncio.gather(*tasks)

    asyncio.run(work())
    assert recorder.order[:6] == ["a0", "b0", "c0", "new", "a1", "b1"]


def test_keys_share_alike_however_many_requests_they_send():
    recorder = Recorder(seconds_per_item=STEADY_S)
    queue = queue_of(recorder, size=FIRST_CHARS)
    many = [(named(f"many{index}-", 10), "greedy", index) for index in range(10)]
    asyncio.run(submitted_while_busy(recorder, queue, *many, (named("one", 5), "modest", "r")))
    assert sorted(text[:3] for text in recorder.order[1:11]) == ["man"] * 5 + ["one"] * 5


def test_requests_of_a_key_share_alike_however_many_calls_they_make():
    recorder = Recorder(seconds_per_item=STEADY_S)
    queue = queue_of(recorder, size=FIRST_CHARS)
    many = [(named(f"many{index}-", 10), "k", "batch") for index in range(10)]
    asyncio.run(submitted_while_busy(recorder, queue, *many, (named("one", 5), "k", "r")))
    assert sorted(text[:3] for text in recorder.order[1:11]) == ["man"] * 5 + ["one"] * 5


def test_texts_of_waiting_requests_share_a_slice():
    recorder = Recorder()
    asyncio.run(submitted_while_busy(recorder, queue_of(recorder), (["a"], "k", "a"), (["b"], "k", "b")))
    assert recorder.slices == [[["first"]], [["a"], ["b"]]]


def test_without_sharing_a_slice_holds_texts_of_one_call():
    recorder = Recorder()
    queue = queue_of(recorder, shared=False)
    asyncio.run(submitted_while_busy(recorder, queue, (named("a", 3), "k", "a"), (named("b", 3), "k", "b")))
    assert recorder.slices[1:] == [[named("a", 3)], [named("b", 3)]]


@pytest.mark.parametrize(("seconds_per_item", "most"), [(0.005, 10), (0.1, 1)])
def test_slices_shrink_until_they_take_their_time(seconds_per_item, most):
    recorder = Recorder(seconds_per_item=seconds_per_item)
    asyncio.run(queue_of(recorder).submit(named("a", 2000), caller="k", request="r"))
    sizes = [len(parts[0]) for parts in recorder.slices]
    assert sizes[0] == 256
    assert max(sizes[-3:-1]) <= most


def test_the_first_slice_of_a_large_request_holds_up_nobody():
    """Nothing is known about the speed yet: on a slow scorer eight texts may take seconds."""
    recorder = Recorder(seconds_per_item=0.2)
    asyncio.run(queue_of(recorder, size=900).submit(named("a", 20), caller="k", request="r"))
    assert {len(parts[0]) for parts in recorder.slices} == {1}


def test_slices_grow_on_a_fast_scorer():
    recorder = Recorder(seconds_per_item=0.0001)
    asyncio.run(queue_of(recorder, size=FIRST_CHARS).submit(named("a", 600), caller="k", request="r"))
    sizes = [len(parts[0]) for parts in recorder.slices]
    assert sizes[:4] == [1, 2, 4, 8]
    assert max(sizes) >= 200


def test_single_slow_texts_do_not_make_slices_small_for_good():
    recorder = Recorder(seconds_per_item=1.0)
    queue = queue_of(recorder)

    async def work():
        for _ in range(20):
            await queue.submit(["slow"], caller="k", request="r")
        recorder.seconds_per_item = 0.0
        await queue.submit(named("a", 100), caller="k", request="r")

    asyncio.run(work())
    assert len(recorder.slices[20][0]) == 100


def test_what_breaks_a_slice_is_raised_by_its_calls_only():
    def run(parts):
        if any("bad" in part for part in parts):
            raise ZeroDivisionError
        return parts

    queue = FairQueue(run, size=lambda text: FIRST_CHARS)

    async def work():
        both = (queue.submit(names, caller="k", request=names[0]) for names in (["bad", "x"], ["good", "y"]))
        return await asyncio.gather(*both, return_exceptions=True)

    bad, good = asyncio.run(work())
    assert isinstance(bad, ZeroDivisionError)
    assert good == ["good", "y"]


def test_the_rest_of_a_cancelled_call_is_not_done():
    recorder = Recorder()
    queue = queue_of(recorder, size=FIRST_CHARS)

    async def work():
        recorder.go.clear()
        gone = asyncio.create_task(queue.submit(named("gone", 50), caller="k", request="gone"))
        await asyncio.sleep(0.01)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        recorder.go.set()
        return await queue.submit(["next"], caller="k", request="next")

    assert asyncio.run(work()) == ["next!"]
    assert recorder.order == ["gone0", "next"]


@settings(max_examples=30)
@given(
    calls=st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 2), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12
    ),
    shared=st.booleans(),
    chars=st.integers(1, FIRST_CHARS),
)
def test_everything_is_done_once_whatever_comes_and_goes(calls, shared, chars):
    recorder = Recorder(seconds_per_item=0.01)
    queue = queue_of(recorder, shared=shared, size=chars)

    async def work():
        tasks = []
        for index, (count, caller, request, _) in enumerate(calls):
            work = named(f"{index}-", count)
            tasks.append(asyncio.create_task(queue.submit(work, caller=caller, request=request)))
        await asyncio.sleep(0)
        for task, (*_, fate) in zip(tasks, calls, strict=True):
            if fate == 0:
                task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(work())
    for index, (result, (count, *_)) in enumerate(zip(results, calls, strict=True)):
        if not isinstance(result, asyncio.CancelledError):
            assert result == [f"{text}!" for text in named(f"{index}-", count)]
    assert len(set(recorder.order)) == len(recorder.order)
    assert queue._waiting == {}
