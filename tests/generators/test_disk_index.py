"""Two integers per id, on disk."""

import pytest

from raydebm.generators.disk_index import DiskIndex


@pytest.fixture
def index():
    made = DiskIndex()
    yield made
    made.close()


def test_an_id_keeps_what_it_was_given_first(index):
    assert index.add("a", 1, 2**40)
    assert not index.add("a", 3, 4)

    assert index.find("a") == (1, 2**40)
    assert len(index) == 1


def test_an_unknown_id_has_nothing(index):
    assert index.find("a") is None


def test_many_ids_are_found(index):
    for number in range(50_000):
        index.add(f"{number:020x}", number, 7 * number)

    assert index.find(f"{49_999:020x}") == (49_999, 349_993)
    assert len(index) == 50_000
