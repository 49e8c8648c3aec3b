"""A run's tables as one table of pools."""

import math
import random

import pytest

from raydebm.errors import PoolError
from raydebm.pipeline.pools import RecordedPools, assembled
from raydebm.records import Label, Problem, Sampling, Verdict
from raydebm.testing import scored_candidate

PROBLEM = Problem(task="task", problem_id="problem", prompt="?")


def item(name, **fields):
    return scored_candidate("A", candidate_id=name, **fields)


def table_of(items, labels=()):
    recorded = RecordedPools(
        candidates={scored.candidate.candidate_id: scored.candidate for scored in items},
        labels={label.candidate_id: label for label in labels},
        reports={scored.candidate.candidate_id: scored.report for scored in items},
        energies={scored.candidate.candidate_id: scored.energies for scored in items},
    )
    return assembled([PROBLEM], recorded)


def names_of(table):
    return [scored.candidate.candidate_id for scored in table.candidates]


def test_the_place_in_a_pool_is_shuffled_and_does_not_depend_on_the_tables():
    items = [item(name) for name in "abcdefgh"]

    one, other = table_of(items), table_of(random.Random(1).sample(items, 8))

    assert one.place_of_row.tolist() == other.place_of_row.tolist()
    assert one.place_of_row.tolist() not in ([*range(8)], [*range(7, -1, -1)])


def test_greedy_samples_stand_beside_the_pool_and_later_passes_nowhere():
    table = table_of([item("a"), item("b", sampling=Sampling(temperature=0.0)), item("c", pass_index=2)])

    assert (names_of(table), names_of(table.greedy)) == (["a"], ["b"])


def test_a_candidate_without_label_is_unlabeled():
    table = table_of([item("a"), item("b")], [Label(candidate_id="a", problem_id="problem", verdict=Verdict.CORRECT)])

    assert table.correct.tolist() == [1.0, pytest.approx(math.nan, nan_ok=True)]


def test_a_candidate_without_report_cannot_be_selected():
    scored = item("a", energies=(0.0,))

    table = assembled([PROBLEM], RecordedPools(candidates={"a": scored.candidate}, energies={"a": scored.energies}))

    assert table.penalty[0] == math.inf
    assert table.candidates[0].report.error == "no constraint report was recorded"


def test_no_candidate_at_all_is_an_error():
    with pytest.raises(PoolError, match="found no candidate of any of the problems"):
        table_of([])


def test_energies_of_two_checkpoints_are_refused():
    with pytest.raises(PoolError, match="1 and 2 energies"):
        table_of([item("a", energies=(0.0, 1.0)), item("b", energies=(0.0,))])
