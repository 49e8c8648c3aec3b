"""The martingales that watch a guarantee: by hand, and over simulated traffic."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydebm.decision.guarantee.watch import ErrorWatch, suspension_of
from raydebm.errors import ConfigError

OUTCOMES = st.lists(st.booleans(), max_size=60)


# ---- outcomes ------------------------------------------------------------------------------------------------------


def test_the_first_outcome_is_not_bet_on():
    assert ErrorWatch(alpha=0.1).bet == 0.0
    assert ErrorWatch(alpha=0.1).after(True).log_wealth == 0.0


def test_the_second_bet_by_hand():
    """Mean (0.1 + 1) / 2 = 0.55; variance (0.09 + 0.45^2) / 2 = 0.14625; bet 0.45 / (0.14625 + 0.45^2) = 1.290323."""
    watch = ErrorWatch(alpha=0.1).after(True)
    assert watch.bet == pytest.approx(0.45 / 0.34875)
    assert math.exp(watch.after(True).log_wealth) == pytest.approx(1 + 0.9 * 0.45 / 0.34875)
    assert math.exp(watch.after(False).log_wealth) == pytest.approx(1 - 0.1 * 0.45 / 0.34875)


def test_an_alarm_comes_when_the_wealth_reaches_one_over_delta_and_stays():
    watches = [ErrorWatch(alpha=0.1, delta=0.05)]
    for wrong in [True] * 8 + [False] * 60:
        watches.append(watches[-1].after(wrong))
    first = next(number for number, watch in enumerate(watches) if watch.log_wealth >= math.log(20))
    assert {watch.alarmed_at for watch in watches[:first]} == {None}
    assert {watch.alarmed_at for watch in watches[first:]} == {first}
    assert watches[-1].log_wealth < math.log(20)


@given(OUTCOMES, st.floats(0.01, 0.99))
def test_the_wealth_under_h0_does_not_grow_on_average(outcomes, alpha):
    """At an error rate of exactly alpha the next factor has expectation 1, whatever came before."""
    watch = ErrorWatch(alpha=alpha).after_all(outcomes)
    assert 0 <= watch.bet * alpha < 1
    expected = alpha * math.exp(watch.after(True).log_wealth) + (1 - alpha) * math.exp(watch.after(False).log_wealth)
    assert expected == pytest.approx(math.exp(watch.log_wealth))


@pytest.mark.parametrize("values", [{"alpha": 0.0}, {"alpha": 1.0}, {"alpha": math.nan}, {"alpha": 0.1, "delta": 0.0}])
def test_rates_lie_between_0_and_1(values):
    with pytest.raises(ConfigError, match="must be strictly between 0 and 1"):
        ErrorWatch(**values)


# ---- the claim -----------------------------------------------------------------------------------------------------


def test_an_alarm_suspends_the_claim_with_its_numbers():
    watch = ErrorWatch(alpha=0.1).after_all([True] * 9)
    suspension = suspension_of(watch)
    assert suspension.startswith("9 of 9 reported answers are wrong, which contradicts an error rate of at most 0.1")
    assert f"alarm after {watch.alarmed_at} outcomes" in suspension
