"""When outputs and values are right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydebm.tasks.sandbox.inside.values import Opaque
from raydebm.tasks.taco.comparison import same_output, same_value


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("3\n", "3"),
        ("1 2 \n3", "1 2\n3 "),
        ("a  b", "a b"),
        ("0.333333", "0.33333333333"),
        ("2.9999999999999996", "3"),
        ("1e-999999999", "0"),
        ("-Infinity", "-inf"),
        ("-0.0", "0"),
        ("1" + "0" * 30 + ".0", "1" + "0" * 30),
        ("", "\n"),
    ],
)
def test_outputs_that_are_right(printed, expected):
    assert same_output(printed, expected)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("1 2", "1\n2"),
        ("YES", "yes"),
        ("0.3334", "0.3333"),
        ("123456.5", "123456"),
        ("3.00001", "3"),
        ("1" + "0" * 30 + ".0", "1" + "0" * 29 + "1"),
        ("-+5", "5"),
        ("nan", "nan."),
        ("0\n1\n0", "1\n0\n1"),
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
    assert same_output(first, second) in (True, False)


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (3, 3),
        ([1, 2], [[1, 2]]),
        ((1, 2), [1, 2]),
        ([(1, "a")], [[[1, "a"]]]),
        ({1: "a"}, [{"1": "a"}]),
        ({"k": (1,)}, [{"k": [1]}]),
        (None, [None]),
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
