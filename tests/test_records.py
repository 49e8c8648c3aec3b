"""What follows from the records' own fields."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydebm.errors import ScoringError
from raydebm.records import (
    Candidate,
    ConstraintReport,
    Energies,
    GenerationRequest,
    Problem,
    Sampling,
    ScoredCandidate,
    well_formed,
)


@pytest.mark.parametrize(
    ("text", "thinking", "reasoning", "expected"),
    [
        ("four", "two and two\n", "answer", "four"),
        ("four", "two and two\n", "all", "two and two\n\nfour"),
        ("four", None, "all", "four"),
        ("four", "", "all", "four"),
        (None, "two and two", "all", None),
    ],
)
def test_what_a_scorer_reads_of_a_candidate(text, thinking, reasoning, expected):
    error = "no reply" if text is None else None
    candidate = Candidate(
        candidate_id="c", task="t", problem_id="p", generator="g", text=text, error=error, reasoning=thinking
    )

    assert candidate.as_scored(reasoning) == dataclasses.replace(candidate, text=expected)


def scored(members=(1.0, 3.0), penalty=0.5):
    return ScoredCandidate(
        candidate=Candidate(candidate_id="c", task="t", problem_id="p", generator="g", text="x"),
        report=ConstraintReport(candidate_id="c", answer="1", vote_key="1", penalty=penalty),
        energies=None if members is None else Energies(candidate_id="c", members=members),
    )


def request(**changes):
    fields = {
        "task": "t",
        "problem_id": "p",
        "generator": "g",
        "messages": ({"role": "user", "content": "q"},),
        "sampling": Sampling(),
        "seed": 1,
    }
    return GenerationRequest(**{**fields, **changes})


def test_mu_is_the_mean():
    assert Energies(candidate_id="c", members=(1.0, 2.0, 6.0)).mu == 3.0


def test_sigma_is_the_population_standard_deviation():
    """Deviations -2, -1, 3: sqrt(14 / 3)."""
    assert Energies(candidate_id="c", members=(1.0, 2.0, 6.0)).sigma == pytest.approx(math.sqrt(14 / 3))


@pytest.mark.parametrize("members", [(), (math.nan,), (1.0, math.inf)])
def test_energies_must_be_finite(members):
    with pytest.raises(ScoringError, match="candidate 'c'"):
        Energies(candidate_id="c", members=members)


def test_unparseable_has_infinite_energy_even_at_lambda_zero():
    """0 * inf would be NaN, which no comparison survives."""
    assert scored(penalty=math.inf).total_energy(0.0) == math.inf


@pytest.mark.parametrize(
    "change",
    [
        {"task": "u"},
        {"problem_id": "q"},
        {"generator": "h"},
        {"messages": ({"role": "user", "content": "r"},)},
        {"sampling": Sampling(temperature=0.1)},
        {"seed": 2},
        {"pass_index": 2},
        {"sample_index": 1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_part_of_a_request_is_part_of_its_id(change):
    assert request(**change).candidate_id != request().candidate_id


def test_problem_has_no_gold_field():
    assert {field.name for field in dataclasses.fields(Problem)} == {
        "task", "problem_id", "prompt", "data", "difficulty", "kind"
    }  # fmt: skip


@given(st.text())
def test_whole_characters_stay_as_they_are(text):
    assert well_formed(text) == text.encode("utf-8", "replace").decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a\ud83d", "a\ufffd"), ("\ude00b", "\ufffdb"), ("\ud83d\ud83d", "\ufffd\ufffd"), ("😀 ü \x00", "😀 ü \x00")],
)
def test_half_characters(text, expected):
    assert well_formed(text) == expected
