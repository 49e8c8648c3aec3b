"""Makes the data builders beside the tests importable, which pytest's importlib mode does not; and sandboxes."""

import sys
from pathlib import Path

import pytest

from raydebm.errors import ResourceError
from raydebm.tasks.sandbox import Sandbox

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def isolated():
    """The class of sandboxes; where programs cannot be isolated, tests that need one are skipped."""
    try:
        Sandbox()
    except ResourceError as error:
        pytest.skip(str(error))
    return Sandbox
