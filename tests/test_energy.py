import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raydebm
from raydebm.records import total_energies, total_energy

NUMBERS = st.floats(-1e6, 1e6)


def test_energy_is_mu_plus_lambda_times_penalty():
    assert total_energy(1.5, 2.0, 0.25) == 2.0


@pytest.mark.parametrize("lambda_", [0.0, 1.0])
def test_what_did_not_parse_has_infinite_energy(lambda_):
    assert total_energy(1.0, math.inf, lambda_) == math.inf
    assert total_energies(np.array([1.0, math.nan]), np.array([math.inf, math.inf]), lambda_).tolist() == [math.inf] * 2


def test_what_was_not_scored_has_no_energy():
    assert np.isnan(total_energies(np.array([math.nan]), np.array([1.0]), 1.0)).all()


@given(NUMBERS, st.one_of(st.floats(0, 1e6), st.just(math.inf)), st.floats(0, 1e3))
def test_arrays_and_numbers_agree(mu, penalty, lambda_):
    assert total_energies(np.array([mu]), np.array([penalty]), lambda_)[0] == total_energy(mu, penalty, lambda_)


def test_no_other_module_writes_the_formula():
    package = Path(raydebm.__file__).parent
    places = [
        path.name for path in package.rglob("*.py") if re.search(r"\+ (?:\w+\.)*lambda_ \*", path.read_text("utf-8"))
    ]

    assert places == ["records.py"]
