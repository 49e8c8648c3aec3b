"""When outputs and values are right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydebm.sandbox.inside.values import Opaque
from raydebm.tasks.taco.comparison import official_same_output, same_output, same_value


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("3\n", "3"),
        ("  3", "3\n\n"),
        ("1 2 \n3", "1 2\n3 "),
        ("1\n\n2\n", "1\n2"),
        ("a  b", "a b"),
        ("0.333333", "0.33333333333"),
        ("1e3", "1000.0"),
        ("2.0", "2"),
        ("2.9999999999999996", "3"),
        ("1e-999999999", "0"),
        (".5", "0.5"),
        ("5.", "5"),
        ("+5", "5"),
        ("-Infinity", "-inf"),
        ("1e6", "1000000"),
        ("-0.0", "0"),
        ("1" + "0" * 30 + ".0", "1" + "0" * 30),
        ("123456.5", "123456.0"),
        ("inf", "inf"),
        ("", "\n"),
    ],
)
def test_outputs_that_are_right(printed, expected):
    assert same_output(printed, expected)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("3", "4"),
        ("1 2", "1\n2"),
        ("2\n1", "1\n2"),
        ("YES", "yes"),
        ("0.3334", "0.3333"),
        ("100000000001", "100000000000"),
        ("123456.5", "123456"),
        ("3.00001", "3"),
        ("999999.0", "1000000"),
        ("1e6", "999999"),
        ("1" + "0" * 30 + ".0", "1" + "0" * 29 + "1"),
        ("-+5", "5"),
        ("5", "-+5"),
        ("nan", "nan."),
        ("1", "1 1"),
        ("", "0"),
        ("9" * 500, "9" * 499 + "8"),
        ("0\n1\n0", "1\n0\n1"),
        ("11", "0011"),
        ("007", "7"),
        ("-01.5", "-1.5"),
        ("1_000", "1000"),
        ("\u0663", "3"),
    ],
)
def test_outputs_that_are_wrong(printed, expected):
    assert not same_output(printed, expected)


@pytest.mark.parametrize("printed", ["1e999999999", "9" * 399, "nan", "sNaN", "inf", "1e" + "9" * 390])
@pytest.mark.parametrize("expected", ["0", "1", "-7", "9" * 400, "1.5", "1e999999999.", "-inf"])
def test_no_number_is_too_large_to_compare(printed, expected):
    assert not same_output(printed, expected)


@given(st.text(), st.text())
def test_any_two_texts_can_be_compared_and_a_text_is_itself(first, second):
    assert same_output(first, first)
    assert official_same_output(first, first)
    assert same_output(first, second) in (True, False)
    assert official_same_output(first, second) in (True, False)


@given(st.text(alphabet="+-0123456789.eEnaif_", max_size=12), st.text(alphabet="+-0123456789.eEnaif_", max_size=12))
def test_any_two_words_like_numbers_can_be_compared(first, second):
    assert same_output(first, second) in (True, False)


@pytest.mark.parametrize(
    ("printed", "expected", "official"),
    [
        ("0.333333", "0.33333333333", False),  # its tolerance is lost: it looks at single characters
        ("0\n1\n0\n", "1\n0\n1", True),  # single characters are compared as sets
        ("12\n", "1 2", True),
        ("a b\nc\n", "a  b\nc", False),
        ("123", "1\n2\n3", True),
        ("5\n", "5", True),
    ],
)
def test_where_the_official_rule_is_another(printed, expected, official):
    assert official_same_output(printed, expected) is official
    if expected != "5":
        assert same_output(printed, expected) is not official


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (3, 3),
        (3, [3]),
        ([1, 2], [[1, 2]]),
        ((1, 2), [1, 2]),
        ([(1, "a")], [[[1, "a"]]]),
        (True, [True]),
        (2.0, 2),
        ({1: "a"}, [{"1": "a"}]),
        ({"k": (1,)}, [{"k": [1]}]),
        (None, [None]),
        ([], []),
    ],
)
def test_values_that_are_right(returned, expected):
    assert same_value(returned, expected)


@pytest.mark.parametrize(
    ("returned", "expected"),
    [(3, [4]), ("3", 3), ([2, 1], [[1, 2]]), (None, []), (0.1 + 0.2, 0.3), ({1, 2}, [[1, 2]]), (Opaque("E"), [1])],
)
def test_values_that_are_wrong(returned, expected):
    assert not same_value(returned, expected)
