"""Sandboxes for the tests; where programs cannot be isolated, these tests are skipped."""

import pytest

from raydebm.errors import ResourceError
from raydebm.sandbox import Limits, Sandbox

MIB = 1 << 20
SMALL = Limits(cpu_s=0.4, wall_s=2.0, memory_bytes=256 * MIB, output_bytes=64 * 1024, disk_bytes=MIB, num_threads=8)


@pytest.fixture(scope="session")
def sandbox():
    try:
        return Sandbox(SMALL, allow_unsandboxed=False)
    except ResourceError as error:
        pytest.skip(str(error))


@pytest.fixture
def session(sandbox):
    with sandbox.session() as opened:
        yield opened
