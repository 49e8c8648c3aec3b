"""The second lane is whole: each of its kinds has tests, and a representative that exists."""

import subprocess
import sys

import lanes
import pytest


@pytest.fixture(scope="module")
def second(repository):
    """Ids of the second lane's tests, kind by kind as its markers and folders say."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "0",
        "--lane",
        "second",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=repository, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    return [line for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.study
@pytest.mark.parametrize("kind", lanes.ONE_OF_EACH)
def test_the_representative_of_a_kind_exists(second, kind):
    assert [name for name in second if name.startswith(lanes.ONE_OF_EACH[kind])]


def test_every_kind_has_a_representative():
    assert set(lanes.ONE_OF_EACH) == set(lanes.KINDS)
