"""docs/operations.md says what is so: its user_config is accepted, its spans and files exist."""

import re

import pytest
import yaml

from raydebm.service.access import LOOK_EVERY_S
from raydebm.service.ray.ingress import CHANGEABLE, changed_args
from raydebm.service.settings import AppArgs


@pytest.fixture(scope="module")
def text(repository):
    return (repository / "docs" / "operations.md").read_text(encoding="utf-8")


def test_the_user_config_is_accepted(text):
    (block,) = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    (deployment,) = yaml.safe_load(block)
    assert changed_args(AppArgs(run_dir="r"), deployment["user_config"]).checkpoint == "/data/run-2/scorer"


def test_everything_that_can_be_changed_is_listed(text):
    assert [key for key in CHANGEABLE if f"`{key}`" not in text] == []


def test_files_that_it_names_exist(text, repository):
    """Other documents are links, which tests/repository/test_docs.py follows."""
    named = set(re.findall(r"`((?:deploy|benchmarks)/[\w./-]*|serve_config\.yaml)`", text))
    assert len(named) >= 6
    assert [name for name in named if not (repository / name).exists()] == []


def test_the_pause_between_two_looks_at_the_keys_is_the_stated_one(text):
    assert f"every {LOOK_EVERY_S:g} seconds" in text
