"""Files that a user names: YAML whose keys must differ."""

import pytest

from raydebm.errors import ConfigError
from raydebm.user_files import yaml_value


def value(text):
    return yaml_value(text, where="recipe 'demo.yaml'")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed: 1\nname: x\nseed: 2", "key 'seed' is given twice, in lines 1 and 3; remove one of them"),
        ("a:\n  b: 1\n  'b': 2", "key 'b' is given twice, in lines 2 and 3"),
        ("- {a: 1, a: 1}", "key 'a' is given twice, in line 1;"),
        ("1: a\n0x1: b", "key 1 is given twice, in lines 1 and 2"),
        ('{"a": 1,\n"\\u0061": 2}', "key 'a' is given twice, in lines 1 and 2"),
    ],
)
def test_a_key_that_stands_twice_is_named_with_its_lines(text, words):
    with pytest.raises(ConfigError, match=f"^recipe 'demo.yaml': {words}"):
        value(text)


def test_the_same_key_in_two_mappings_is_none_that_stands_twice():
    assert value("a: {x: 1}\nb: {x: 2}") == {"a": {"x": 1}, "b": {"x": 2}}


def test_a_key_replaces_one_that_is_merged_in():
    text = "base: &base {x: 1, y: 2}\nlist: [{<<: *base, x: 3}]\nagain: {<<: *base, <<: {z: 4}, y: 5}"
    assert value(text) == {
        "base": {"x": 1, "y": 2},
        "list": [{"x": 3, "y": 2}],
        "again": {"x": 1, "y": 5, "z": 4},
    }


def test_a_mapping_that_is_merged_before_it_is_built_has_each_key_once():
    text = "a: {deep: &b {<<: &c {x: 1}, x: 2}}\nz: {<<: *b}"
    assert value(text) == {"a": {"deep": {"x": 2}}, "z": {"x": 2}}


def test_a_list_is_no_key():
    with pytest.raises(ConfigError, match="is not YAML: "):
        value("!!seq a: 1\n!!seq b: 2")
