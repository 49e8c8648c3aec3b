"""Equal texts are scored once per replica."""

import time

import pytest

from raydebm.records import Energies
from raydebm.scorer.texts import TextToScore
from raydebm.serving.ray.ensembles import CacheCounts, EnergyCache


def text(candidate, prompt="p", name="c"):
    return TextToScore(name, prompt, candidate)


def energies(value=1.0, name="c"):
    return Energies(candidate_id=name, members=(value, value), num_tokens=3)


def test_a_known_text_has_its_energies_under_the_new_candidates_id():
    cache = EnergyCache(10)
    cache.keep("one", text("a", name="first"), energies(2.0, name="first"))

    assert cache.find("one", text("a", name="second")) == energies(2.0, name="second")
    assert cache.counts == CacheCounts(hits=1, misses=0)


@pytest.mark.parametrize(
    ("checkpoint", "other"),
    [("two", text("bc", "a")), ("one", text("c", "ab")), ("one", text("bc", "A")), ("one", text("bc ", "a"))],
    ids=["checkpoint", "border", "problem", "candidate"],
)
def test_what_differs_is_another_text(checkpoint, other):
    cache = EnergyCache(10)
    cache.keep("one", text("bc", "a"), energies())

    assert cache.find(checkpoint, other) is None
    assert cache.counts == CacheCounts(hits=0, misses=1)


def test_half_a_character_is_a_text_too():
    cache = EnergyCache(10)
    cache.keep("one", text("\ud800"), energies())

    assert cache.find("one", text("\ud800")) is not None


def test_the_least_recently_used_text_goes_first():
    cache = EnergyCache(2)
    cache.keep("one", text("a"), energies())
    cache.keep("one", text("b"), energies())
    cache.find("one", text("a"))
    cache.keep("one", text("c"), energies())

    assert [cache.find("one", text(name)) is not None for name in "abc"] == [True, False, True]


def test_without_room_nothing_is_kept():
    cache = EnergyCache(0)
    cache.keep("one", text("a"), energies())

    assert (len(cache), cache.find("one", text("a"))) == (0, None)


def test_entries_go_with_their_ensemble():
    cache = EnergyCache(10)
    cache.keep("one", text("a"), energies())
    cache.keep("two", text("a"), energies())
    cache.evict_all_but(["two"])

    assert cache.find("one", text("a")) is None
    assert cache.find("two", text("a")) is not None


def test_a_full_cache_is_not_looked_through_while_the_ensembles_are_the_same():
    cache = EnergyCache(100_000)
    for index in range(100_000):
        cache.keep("one", text(str(index)), energies())
    cache.evict_all_but(["one"])
    started = time.process_time()
    for _ in range(200):
        cache.evict_all_but(["one"])

    assert time.process_time() - started < 0.2
    assert len(cache) == 100_000


def test_energies_that_come_after_their_checkpoint_went_are_not_kept():
    cache = EnergyCache(10)
    cache.evict_all_but(["two"])
    cache.keep("one", text("a"), energies())
    cache.keep("two", text("a"), energies())

    assert len(cache) == 1
