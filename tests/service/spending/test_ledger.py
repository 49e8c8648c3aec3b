"""The ledger: exact sums, and ceilings that hold."""

from datetime import UTC, datetime

import pytest
from hand_written_run import Clock
from hypothesis import given
from hypothesis import strategies as st

from raydebm.errors import ResourceError
from raydebm.service.spending import NANO, Amount, Ceilings, Ledger

CEILING = {"service": Ceilings(usd=100 / NANO)}


@pytest.fixture
def clock():
    return Clock(datetime(2026, 3, 1, 23, 59, tzinfo=UTC))


@pytest.fixture
def ledger(tmp_path, clock):
    opened = Ledger(str(tmp_path / "ledger.sqlite"), clock=clock)
    yield opened
    opened.close()


def usd(*values):
    return [Amount(nano_usd=value) for value in values]


def test_money_is_rounded_up():
    assert Amount.of(1.1e-9) == Amount(2, 1)
    assert Amount.of(float("inf")).nano_usd == 10**17
    assert Amount.of(0.5).nano_usd == NANO // 2


def test_what_does_not_fit_is_passed_over_and_what_is_smaller_is_not(ledger):
    assert ledger.reserve(CEILING, usd(60, 50, 40, 1)).granted == (0, 2)
    assert ledger.spent("service") == Amount(nano_usd=100)


def test_the_lowest_of_several_ceilings_counts(ledger):
    both = {**CEILING, "key:a": Ceilings(usd=10 / NANO)}
    assert ledger.reserve(both, usd(8, 8)).granted == (0,)
    assert ledger.reserve(CEILING, usd(92)).granted == (0,)
    assert ledger.reserve(both, usd(1)).granted == ()


def test_a_new_day_begins_at_zero_and_old_holds_stay_in_their_day(ledger, clock):
    hold = ledger.reserve(CEILING, usd(90))
    assert ledger.resets_at() == datetime(2026, 3, 2, tzinfo=UTC)
    clock.now = datetime(2026, 3, 2, 0, 1, tzinfo=UTC)
    assert ledger.spent("service") == Amount()
    ledger.settle(hold, Amount(nano_usd=20))
    assert ledger.spent("service") == Amount()


def test_a_file_that_is_no_ledger_grants_nothing(tmp_path):
    (tmp_path / "ledger.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(ResourceError, match=r"ledger\.sqlite"):
        Ledger(str(tmp_path / "ledger.sqlite")).reserve(CEILING, usd(1))


@given(
    amounts=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=30),
    ceiling=st.integers(0, 200),
)
def test_spending_never_exceeds_the_ceiling_and_sums_are_exact(tmp_path_factory, amounts, ceiling):
    ledger = Ledger(str(tmp_path_factory.mktemp("ledger") / "ledger.sqlite"))
    limits, total = {"service": Ceilings(usd=ceiling / NANO)}, 0
    for worst, actual in amounts:
        hold = ledger.reserve(limits, usd(worst))
        assert bool(hold.granted) == (total + worst <= ceiling)
        if hold.granted:
            ledger.settle(hold, Amount(nano_usd=min(worst, actual)))
            total += min(worst, actual)
    assert ledger.spent("service").nano_usd == total <= ceiling
    ledger.close()
