"""The CPUs of a process: affinity and quota."""

import os

import pytest

from raydebm.cpus import free_cpus, usable_cpus

ABSENT = "nothing-here"


@pytest.fixture
def affinity(monkeypatch):
    """Eight CPUs, whatever this machine has."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("max 100000\n", 8),
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),
        ("50000 100000\n", 1),
        ("1600000 100000\n", 8),
        ("", 8),
    ],
    ids=["no quota", "two", "one and a half", "half", "more than there are", "unreadable"],
)
def test_the_quota_of_version_2(tmp_path, affinity, content, expected):
    (tmp_path / "cpu.max").write_text(content)

    assert usable_cpus(v2=tmp_path / "cpu.max", v1=tmp_path / ABSENT) == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1", 8), ("300000", 3)])
def test_the_quota_of_version_1(tmp_path, affinity, quota, expected):
    (tmp_path / "cpu.cfs_quota_us").write_text(quota)
    (tmp_path / "cpu.cfs_period_us").write_text("100000")

    assert usable_cpus(v2=tmp_path / ABSENT, v1=tmp_path) == expected


def test_without_control_groups_the_affinity_counts(tmp_path, affinity):
    assert usable_cpus(v2=tmp_path / ABSENT, v1=tmp_path / ABSENT) == 8


@pytest.mark.parametrize(
    ("load", "num_cpus", "expected"),
    [(0.0, 8, 8), (0.4, 8, 8), (4.0, 8, 4), (7.9, 8, 1), (30.0, 8, 1), (32.0, 64, 4)],
    ids=["idle", "nearly idle", "half", "nearly full", "overloaded", "half of a larger machine"],
)
def test_the_load_of_the_machine_is_left_to_others(affinity, monkeypatch, load, num_cpus, expected):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: num_cpus)
    monkeypatch.setattr("raydebm.cpus._quota", lambda words: None)

    assert free_cpus() == expected
