"""Sandboxes for the tests; where programs cannot be isolated, these tests are skipped."""

from dataclasses import replace

import pytest

from raydebm.tasks.sandbox import Limits

MIB = 1 << 20
PATIENT = Limits(cpu_s=20.0, wall_s=60.0, memory_bytes=256 * MIB, output_bytes=64 * 1024, disk_bytes=MIB, num_threads=8)
"""Small, except for time: a program that ends by itself does so on any machine."""


@pytest.fixture(scope="session")
def sandbox(isolated):
    return isolated(PATIENT)


@pytest.fixture
def session(sandbox):
    with sandbox.session() as opened:
        yield opened


@pytest.fixture(scope="session")
def hasty():
    """For programs that never end."""
    return replace(PATIENT, cpu_s=0.4, wall_s=2.0)
