"""``key=value`` on the command line, over a recipe and its defaults."""

import pytest

from raydebm.config import apply_overrides, parse_recipe
from raydebm.errors import ConfigError

MINIMAL = {
    "name": "tiny",
    "task": {"name": "gsm8k"},
    "generators": [{"kind": "openai", "name": "q", "model": "m"}],
}


def test_overrides_reach_into_sections_and_lists():
    recipe = parse_recipe(MINIMAL, overrides=["decision.lambda=2", "generators.0.model=n", "pairs.max_pairs=null"])

    assert (recipe.decision.lambda_, recipe.generators[0].model, recipe.pairs.max_pairs) == (2.0, "n", None)


def test_an_override_below_a_list_that_is_left_out_changes_its_default():
    recipe = parse_recipe(MINIMAL, overrides=["scorer.adapters.0.rank=3", "decision.lambdas.1=9"])

    assert [adapter.rank for adapter in recipe.scorer.adapters] == [3, 8, 16, 4, 8]
    assert recipe.decision.lambdas == (0.0, 9.0, 1.0, 2.0, 4.0)


def test_an_override_below_a_section_that_is_left_out_keeps_its_other_defaults():
    recipe = parse_recipe(MINIMAL, overrides=["decision.costs.wrong=3", "task.train.limit=4"])

    assert (recipe.decision.costs.wrong, recipe.decision.confidence) == (3.0, 0.9)
    assert (recipe.task.train.split, recipe.task.train.limit) == ("train", 4)


@pytest.mark.parametrize("override", ["seed", "=3", "name.x=1", "generators.7.model=n", "generators.\u00b2.model=n"])
def test_a_wrong_override_is_refused(override):
    with pytest.raises(ConfigError, match="override"):
        apply_overrides(MINIMAL, [override])


@pytest.mark.parametrize("value", ["[1", "{", "@x", "a: b: c", "%x", "2024-13-45", "&a [*a]", "[" * 5000])
@pytest.mark.parametrize("key", ["seed", "generators.0"])
def test_an_override_that_is_not_yaml_is_refused(key, value):
    with pytest.raises(ConfigError, match=r"override '.*': the value is not YAML; put it in quotes"):
        apply_overrides(MINIMAL, [f"{key}={value}"])


def test_overrides_leave_the_tree_alone():
    tree = {"a": {"b": 1}}
    apply_overrides(tree, ["a.b=2"])

    assert tree == {"a": {"b": 1}}
