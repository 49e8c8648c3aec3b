"""A lock on a file, between processes and between threads of one."""

import os
import threading

import pytest

from raydebm.run.file_lock import locked


@pytest.fixture
def held(tmp_path):
    """A descriptor that holds the lock on ``.lock``."""
    return locked(tmp_path / ".lock", wait=False)


def test_a_lock_that_is_held_is_refused(held, tmp_path):
    with pytest.raises(BlockingIOError):
        locked(tmp_path / ".lock", wait=False)
    os.close(held)


def test_a_closed_descriptor_holds_nothing(held, tmp_path):
    os.close(held)
    os.close(locked(tmp_path / ".lock", wait=False))


def test_who_waits_gets_the_lock_when_it_is_free(held, tmp_path):
    got = []
    waiting = threading.Thread(target=lambda: got.append(locked(tmp_path / ".lock", wait=True)))
    waiting.start()
    waiting.join(timeout=0.2)
    assert got == []

    os.close(held)
    waiting.join(timeout=30)
    (descriptor,) = got
    os.close(descriptor)


def test_where_no_file_can_be_there_is_no_lock(tmp_path):
    (tmp_path / "file").write_text("x")

    assert locked(tmp_path / "file" / ".lock", wait=False) is None
