"""Messages: names of values and formats of numbers, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydebm.errors import ConstraintError
from raydebm.tasks.constraints.templates import check_template, fill, full_text, places_in, short_text


@pytest.mark.parametrize(
    ("template", "values", "expected"),
    [
        ("over by ${excess:,.2f}", {"excess": 1312.5}, "over by $1,312.50"),
        ("{n:d} of {m}", {"n": 3.0, "m": 4.0}, "3 of 4"),
        ("{share:.0%}", {"share": 0.25}, "25%"),
        ("{x:.2f}", {"x": "many"}, "many"),
        ("{x:.2f}", {"x": None}, "null"),
        ("got {x}", {"x": "{y}"}, "got {y}"),
        ("{x}", {"x": {"a": [1, "é"]}}, '{"a": [1, "é"]}'),
        ('write {"reply": 1} and {x}', {"x": True}, 'write {"reply": 1} and true'),
        ("{missing}", {}, "{missing}"),
        ("{x:d}", {"x": float("inf")}, "inf"),
    ],
)
def test_fill(template, values, expected):
    check_template(template, {"excess", "n", "m", "share", "x", "y", "missing"})

    assert fill(template, values) == expected


@pytest.mark.parametrize("template", ["{x.__class__}", "{x[0]}", "{x!r}", "{x.y:.2f}", "a {x()} b"])
def test_more_than_a_name_is_refused(template):
    with pytest.raises(ConstraintError, match="only plain names are allowed"):
        places_in(template)


@pytest.mark.parametrize("template", ["{x:>99999999}", "{x:s}", "{x:.99f}", "{x:e}"])
def test_formats_other_than_of_numbers_are_refused(template):
    with pytest.raises(ConstraintError, match="format must be one of a number"):
        check_template(template, {"x", "y"})


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(ConstraintError, match=r"\{valeu\}.*known: limit, value"):
        check_template("{valeu}", {"value", "limit"})


def test_long_values_are_cut_in_messages_and_whole_in_prompts():
    assert len(short_text("x" * 1000)) == 200
    assert len(full_text("x" * 1000)) == 1000


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
)


@given(st.text(alphabet="{}xy:.,2f[]!_ %d\"'"), values)
def test_a_checked_template_fills_with_any_value(template, value):
    try:
        check_template(template, {"x", "y"})
    except ConstraintError:
        return
    assert isinstance(fill(template, {"x": value, "y": value}), str)
