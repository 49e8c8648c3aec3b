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
