"""Whom an endpoint's refusal spares the journey, and whom it does not."""

import dataclasses

import pytest

from raydebm.generators.endpoint.rate_limits import PAUSE_S, Refusals
from raydebm.records import Sampling

SCHEMA = '{"type": "json_object"}'


@pytest.fixture
def refused(ask):
    """Refusals after the requests of so many problems were refused at second 0."""

    def make(*contents, **changes):
        refusals = Refusals()
        for content in contents:
            refusals.note_doubtful(dataclasses.replace(ask(content), **changes), "HTTP 404", now=0.0)
        return refusals

    return make


def test_three_problems_in_a_row_spare_the_others_for_a_while(refused, ask):
    refusals = refused("p: 404", "q: 404", "r: 404")

    assert refusals.applying_to(ask("s: 404"), now=PAUSE_S - 1) == "HTTP 404"
    assert refusals.applying_to(ask("s: 404"), now=PAUSE_S) is None


@pytest.mark.parametrize("changes", [{"response_format": SCHEMA}, {"sampling": Sampling(max_tokens=9999)}])
def test_who_asks_for_something_else_is_not_spared(refused, ask, changes):
    refusals = refused("p: 404", "q: 404", "r: 404", **changes)

    assert refusals.applying_to(dataclasses.replace(ask("s: 404"), **changes), now=1.0) == "HTTP 404"
    assert refusals.applying_to(ask("s: 404"), now=1.0) is None


def test_a_shorter_prompt_than_any_refused_one_is_sent(refused, ask):
    """It may be what the credit still covers."""
    refusals = refused("p: " + "x" * 900, "q: " + "x" * 700, "r: " + "x" * 800)

    assert refusals.applying_to(ask("s: " + "x" * 699), now=1.0) is None
    assert refusals.applying_to(ask("s: " + "x" * 700), now=1.0) == "HTTP 404"
