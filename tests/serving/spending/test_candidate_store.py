"""The store of reusable candidates: by caller and key, for a while, within a bound."""

import pytest

from raydebm.records import Candidate, Sampling
from raydebm.serving.spending.candidate_store import CandidateStore, ReuseLimits

HOUR = ReuseLimits(max_age_s=3600.0, max_bytes=1_000_000)


class Clock:
    now = 1_780_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, clock):
    opened = CandidateStore(str(tmp_path / "candidates.sqlite"), clock=clock)
    yield opened
    opened.close()


def candidate(text="The answer is 4.", **facts):
    return Candidate(candidate_id="c", task="t", problem_id="p", generator="ada", text=text, **facts)


def test_a_candidate_comes_back_as_it_was(store):
    whole = candidate(
        "half a character \ud83d", sampling=Sampling(stop=("###",)), reasoning="hm", cost_usd=0.5, prompt_tokens=10
    )
    store.keep("a", {"k": whole}, limits=HOUR)

    assert store.find("a", ["k", "other"], max_age_s=3600)["k"].candidate == whole


def test_another_owner_finds_nothing(store):
    store.keep("a", {"k": candidate()}, limits=HOUR)
    assert store.find("b", ["k"], max_age_s=3600) == {}
    assert store.find("", ["k"], max_age_s=3600) == {}


def test_the_age_is_told_and_bounds_what_is_found(store, clock):
    store.keep("a", {"k": candidate()}, limits=HOUR)
    clock.now += 59.0
    assert store.find("a", ["k"], max_age_s=60)["k"].age_s == 59.0
    clock.now += 1.0
    assert store.find("a", ["k"], max_age_s=60) == {}


def test_a_newer_candidate_replaces_the_older_one(store, clock):
    store.keep("a", {"k": candidate("old")}, limits=HOUR)
    clock.now += 10
    store.keep("a", {"k": candidate("new")}, limits=HOUR)

    stored = store.find("a", ["k"], max_age_s=3600)["k"]
    assert (stored.candidate.text, stored.age_s) == ("new", 0.0)


def test_the_oldest_go_where_there_is_no_room(store, clock):
    for key in "klm":
        store.keep("a", {key: candidate("x" * 1000)}, limits=HOUR)
        clock.now += 1
    room_for_two = ReuseLimits(max_age_s=3600.0, max_bytes=3500)  # an entry has 1000 letters and about 400 of facts
    store.keep("b", {"n": candidate("x" * 1000)}, limits=room_for_two)

    assert set(store.find("a", list("klm"), max_age_s=3600)) == {"m"}
    assert set(store.find("b", ["n"], max_age_s=3600)) == {"n"}


def test_a_replaced_candidate_counts_once(store, clock):
    room_for_two = ReuseLimits(max_age_s=3600.0, max_bytes=3500)
    for key in "klllll":
        store.keep("a", {key: candidate("x" * 1000)}, limits=room_for_two)
        clock.now += 1

    assert set(store.find("a", ["k", "l"], max_age_s=3600)) == {"k", "l"}


def test_what_left_the_file_makes_room(store, clock):
    store.keep("a", {"k": candidate("x" * 1000), "l": candidate("x" * 1000)}, limits=HOUR)
    clock.now += 3600
    room_for_two = ReuseLimits(max_age_s=3600.0, max_bytes=3500)
    store.keep("a", {"m": candidate("x" * 1000), "n": candidate("x" * 1000)}, limits=room_for_two)

    assert set(store.find("a", list("klmn"), max_age_s=3600)) == {"m", "n"}


def test_what_is_too_old_leaves_the_file(store, clock):
    store.keep("a", {"k": candidate()}, limits=HOUR)
    clock.now += 3600
    store.keep("a", {"l": candidate()}, limits=HOUR)
    clock.now -= 3600

    assert set(store.find("a", ["k", "l"], max_age_s=1e9)) == {"l"}


def test_processes_share_the_file(store, tmp_path, clock):
    store.keep("a", {"k": candidate()}, limits=HOUR)
    other = CandidateStore(str(tmp_path / "candidates.sqlite"), clock=clock)

    assert set(other.find("a", ["k"], max_age_s=3600)) == {"k"}
    other.close()
