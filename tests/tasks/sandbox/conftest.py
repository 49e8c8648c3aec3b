"""Sandboxes for the tests; where programs cannot be isolated, these tests are skipped."""

import pytest
from task_data import HASTY, PATIENT


@pytest.fixture(scope="session")
def sandbox(isolated):
    return isolated(PATIENT)


@pytest.fixture
def session(sandbox):
    with sandbox.session() as opened:
        yield opened


@pytest.fixture(scope="session")
def hasty():
    return HASTY
