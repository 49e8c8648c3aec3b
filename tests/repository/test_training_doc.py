"""docs/training.md says what is so: its YAML is accepted, its commands and options exist."""

import re
import shlex

import pytest
import yaml

from raydebm.cli.commands import command_of
from raydebm.config import parse_recipe

RECIPE = {
    "name": "r",
    "task": {"name": "gsm8k"},
    "generators": [{"kind": "recorded", "name": "g", "pool": "p", "model": "m"}],
}


@pytest.fixture(scope="module")
def text(repository):
    return (repository / "docs" / "training.md").read_text(encoding="utf-8")


def test_the_recipes_are_accepted(text):
    blocks = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)

    assert len(blocks) == 2
    for block in blocks:
        parse_recipe(RECIPE | yaml.safe_load(block))


def test_the_commands_are_accepted(text):
    commands = [
        shlex.split(line)
        for block in re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
        for line in block.splitlines()
    ]

    assert [command[:2] for command in commands] == [["raydebm", verb] for verb in ("export",)]
    for _, verb, *options in commands:
        command_of(verb).make_context(verb, options)


def test_every_option_of_an_export_is_explained(text):
    export = command_of("export")
    options = {option for parameter in export.params for option in parameter.opts}

    assert {option for option in options if option not in text} == set()


def test_every_number_of_an_epoch_is_named(text):
    from raydebm.scorer.checkpoint_records import EpochMetrics

    assert {name for name in EpochMetrics.model_fields if f"`{name}`" not in text} == {"epoch"}
