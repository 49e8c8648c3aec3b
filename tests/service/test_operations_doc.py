"""docs/operations.md says what is so: its user_config is accepted, its spans and files exist."""

import re

import pytest
import yaml

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
