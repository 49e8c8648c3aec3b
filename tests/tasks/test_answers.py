"""Numbers in answers. Expectations are what a person reads in the text."""

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raydebm.tasks.answers import find_number, numbers_in, read_number, render_number


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("18", 18),
        ("1,080", 1080),
        (r"1{,}234", 1234),
        ("$118 000", 118000),
        ("9\u202f500.50", Fraction(19001, 2)),
        ("$-25$", -25),
        ("\u2212 7 and \u22127", 7),  # a spaced minus is an operator or a dash
        ("€ 3.50", Fraction(7, 2)),
        (r"12\%", 12),
        ("18eggs", 18),
        ("3/4", Fraction(3, 4)),
        ("3 1/2 hours", Fraction(7, 2)),
        (r"3\frac{1}{2}", Fraction(7, 2)),
        (r"\frac12", Fraction(1, 2)),
        ("1.5 million", 1500000),
        ("1\u00bd", Fraction(3, 2)),
        ("1.000.000", 1000000),
        (r"1.5 \times 10^{3}", 1500),
        ("2e-2", Fraction(1, 50)),
        ("5/0", None),
        ("4 (3 onions and 1 potato)", 4),
        (r"52 \, \text{WPM}", 52),
        ("", None),
    ],
)
def test_read_number(text, expected):
    assert read_number(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "20\u20134",
        "12.48 - (0.03 * 16)",
        "(3x/2) + 4",
        r"30 \times \frac{1}{2}",
        "4x - 4",
        "$56,000 + her new salary",
    ],
)
def test_a_part_of_arithmetic_is_no_number(text):
    assert read_number(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**18** eggs", 18),
        ("18 - the rest is sold", 18),
        ("$5/h", 5),
        ("18 (16 + 2)", 18),
        (r"82^\circ", 82),
        ("-7", -7),
    ],
)
def test_what_only_looks_like_arithmetic(text, expected):
    assert read_number(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("2:10 pm", None), ("2:00 pm", 2), ("12:00:00", 12), ("3:5", None)])
def test_a_time_of_day_is_read_whole(text, expected):
    assert read_number(text) == expected


def test_every_number_of_a_text_in_order():
    assert numbers_in("16-3 and 20 in 4, at 9:30") == [None, None, 20, 4, None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("So 9 * 2 = 18.\n#### 18", 18),
        ("#### The final answer is: **18**", 18),
        ("#### 17\nWait, that is wrong.\n#### 18", 18),
        ("#### Step 1: add 3 and 4\n7\n#### 2. Multiply by 2\nThe answer is 14.", 14),
        ("#### 1st step: 16 - 7 = 9\nShe has 18.", 18),
        (r"Thus \boxed{18} of 20 are left.", 18),
        (r"\boxed{\text{cost} = \$8,400}", 8400),
        (r"The first of 3 is \boxed{\text{Monday}}, of 7 days", None),
        ('{"reasoning": "9 * 2 = 18", "answer": "18"}', 18),
        ('```json\n{"reasoning": "a\nb", "answer": "$1,500"}\n```\nThat took 3 steps.', 1500),
        ('{"reasoning": "...", "answer": "\\frac{1}{4}"}', Fraction(1, 4)),
        ('{"answer": "12"} Let me check. {"answer": "14"}', 14),
        ('{"reasoning": "9 * 2 = 18", "answer": "unlimited"}', None),
        ("The answer is 3 days, so 18 are left", 3),
        ("The best option is to buy 3 packs.\nShe pays $18.", 18),
        ("The answer is not 5 but I say: the final answer is $18.", 18),
        ("**Answer:**\n18", 18),
        ("So our answer is correct.\nShe has 4 + 5 = 9 eggs, worth $18.\n```", 18),
        ("9 in the first line\nnothing in the last", None),
        ('{"reasoning": "For the first 5 months, John has $100,00', None),
        ('```json\n{"reasoning": He has $2050, "answer": $2050\n}\n```\nThat took 3 steps.', 2050),
        ("The answer is 2:10 pm.\nThat took 3 steps.", None),
        (r"He pays \(\boxed{\$45.00}\).45.00", 45),
        ("Tim waits at their house, and wins the race.4", 4),
        (r"Tim waits \(\boxed{4}\) minutes or \(\boxed{0.067}\) hours before the race ends.4", 4),
        ('{"answer": 18 - 3}', None),
        ('{"answer": 1,080, "sure": 2}', 1080),
        ("{'answer': '18'}\nThat took 3 steps.", 18),
        ("So $x = \\boxed 18$ of 20.", 18),
        ("#### 1\nShe buys 18.\n#### 2\nThat is enough: 18", 18),
    ],
)
def test_find_number(text, expected):
    assert find_number(text, fallback=True) == expected


def test_without_fallback_only_a_marked_number_counts():
    assert find_number("She has 9 eggs.") is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Fraction(18), "18"),
        (Fraction(-7, 4), "-1.75"),
        (Fraction(1, 3), "1/3"),
        (Fraction(0), "0"),
    ],
)
def test_render_number(value, expected):
    assert render_number(value) == expected


@given(st.fractions(max_denominator=10**6))
def test_rendered_numbers_read_back_exactly(value):
    assert read_number(render_number(value)) == value


@given(st.integers(-(10**12), 10**12))
def test_thousands_separators_change_nothing(value):
    assert read_number(f"{value:,}") == value


def test_a_number_whose_canonical_text_would_not_be_read_is_none():
    assert read_number("9" * 180 + "e-100") is None
    assert read_number("9" * 150 + "e40") == Fraction(10**150 - 1) * 10**40


@given(st.one_of(st.text(), st.text(alphabet='0123456789#$.,/-+eE{}\\"boxedanswer:=% \n')))
@example("9" * 5000)
@example("1e999999999")
@example("#### 1e999999999")
@example("\u0663")  # a digit that int() reads and the pattern does not
@example('{"answer": "\\u12"}')
def test_total_on_any_text(text):
    value = find_number(text, fallback=True)
    assert value is None or isinstance(value, Fraction)
