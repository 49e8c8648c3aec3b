"""Replicas notice that an admin changed the policy through another replica."""

import asyncio
from pathlib import Path

import pytest

from raydebm.decision.policy_history import PolicyHistory
from raydebm.run.directory import RunDir
from raydebm.serving.ray.policy_watch import PolicyWatch


@pytest.fixture
def history(tmp_path):
    return PolicyHistory(RunDir(str(tmp_path)))


def test_nothing_is_new_without_a_request(tmp_path):
    assert not PolicyWatch([str(tmp_path)]).is_new()


def test_a_replica_that_starts_after_a_request_takes_the_policies(tmp_path, history):
    """The bundle that it was given may be older."""
    history.apply()
    assert PolicyWatch([str(tmp_path)]).is_new()


def test_each_request_is_new_once(tmp_path, history):
    watch = PolicyWatch([str(tmp_path)])
    history.apply()
    assert (watch.is_new(), watch.is_new()) == (True, False)
    history.apply()
    assert watch.is_new()


def test_every_run_is_looked_at(tmp_path):
    folders = [str(tmp_path / name) for name in ("a", "b")]
    watch = PolicyWatch(folders)
    for folder in folders:
        PolicyHistory(RunDir(folder)).apply()
    assert (watch.is_new(), watch.is_new()) == (True, False)  # both at once


def test_a_run_that_is_added_later_brings_no_old_news(tmp_path, history):
    history.apply()
    watch = PolicyWatch([])
    watch.look_at([str(tmp_path)])
    assert not watch.is_new()
    history.apply()
    assert watch.is_new()


def test_a_torn_request_is_none(tmp_path, history):
    watch = PolicyWatch([str(tmp_path)])
    history.apply()
    Path(tmp_path, "policies", "applied.json").write_text("{")
    assert not watch.is_new()


def test_the_policies_are_taken_after_each_request(tmp_path, history):
    async def follow():
        taken = asyncio.Queue()
        task = asyncio.create_task(
            PolicyWatch([str(tmp_path)], every_s=0.001).follow(lambda: taken.put(history.applied()))
        )
        try:
            for number in (1, 2):
                history.apply()
                async with asyncio.timeout(60):
                    assert await taken.get() == number
        finally:
            task.cancel()

    asyncio.run(follow())
