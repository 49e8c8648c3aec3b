"""Numbers as cells of a table."""

import pytest

from raydebm.evaluation.certainty.reliability import CalibrationError
from raydebm.evaluation.report.document import ece_cells, ece_in_words, number, points, with_interval
from raydebm.evaluation.stats.intervals import Estimate


@pytest.mark.parametrize(
    ("shown", "text"), [(number, "1.000 [n/a]"), (with_interval, "100.0 [n/a]"), (points, "+100.0 [n/a]")]
)
def test_a_number_that_can_have_no_interval_says_so(shown, text):
    assert shown(Estimate(value=1.0, low=None, high=None, n=27)) == text


def test_an_ece_stands_next_to_what_chance_alone_brings():
    error = CalibrationError(value=0.0571, n=414, perfect=0.0462, perfect_high=0.0655)

    assert ece_cells(error) == ("0.057", "0.046, at most 0.066")
    assert ece_in_words(error) == "0.057 (a perfectly calibrated one: 0.046, at most 0.066 with 95 % chance, n=414)"


def test_an_ece_of_graded_outcomes_stands_alone():
    assert ece_cells(CalibrationError(value=0.01, n=50)) == ("0.010", "-")
    assert ece_in_words(CalibrationError(value=0.01, n=50)) == "0.010 (n=50)"
