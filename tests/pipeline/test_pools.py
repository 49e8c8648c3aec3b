"""A run's tables as one table of pools."""

import math
import random

import pytest
from tiny_run import recipe_of

from raydebm.errors import PoolError
from raydebm.pipeline.context import TEST, StageContext
from raydebm.pipeline.pools import assembled, default_policy, recorded_candidates, recorded_labels
from raydebm.pipeline.stages.passes import outcomes_of
from raydebm.records import CandidateScore, Label, Problem, Sampling, Verdict
from raydebm.run.tables import ENERGIES, EnergyRow, SplitProblem
from raydebm.testing import scored_candidate

PROBLEM = Problem(
    task="task", problem_id="problem", prompt="?", data={"names": [], "statements": [], "roles": ["k", "l"]}
)


def item(name, **fields):
    return scored_candidate("A", candidate_id=name, **fields)


def table_of(items, labels=()):
    return assembled([PROBLEM], items, labels={label.candidate_id: label for label in labels})


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


def test_no_candidate_at_all_is_an_error():
    with pytest.raises(PoolError, match="found no candidate of any of the problems"):
        table_of([])


def test_energies_of_two_checkpoints_are_refused():
    with pytest.raises(PoolError, match="1 and 2 energies"):
        table_of([item("a", energies=(0.0, 1.0)), item("b", energies=(0.0,))])


def record(context, stage, *names, pass_index=1, checked=True):
    """Write the tables of a pass, of which the first pass has one folder each and scores of a reader."""
    run, is_first = context.run, stage == "candidates"
    items = [item(name, pass_index=pass_index) for name in names]
    run.write_candidates((each.candidate for each in items), stage)
    run.write_reports((each.report for each in items if checked), "labels" if is_first else stage)
    labels = (Label(candidate_id=name, problem_id="problem", verdict=Verdict.CORRECT) for name in names)
    run.write_labels(labels, "labels" if is_first else stage)
    folder = "energies" if is_first else stage
    run.write_records(ENERGIES, [EnergyRow(candidate_id=names[0], members=(1.0,))], folder, "energies.parquet")
    scores = [CandidateScore(candidate_id=names[0], name="reader", score=0.5)]
    scores += [CandidateScore(candidate_id=name, name="reader", score=None, error="no text") for name in names[1:]]
    run.write_scores(scores, "reader", "scores" if is_first else f"{stage}/scores")


@pytest.fixture
def context(tmp_path):
    reader = {"kind": "reader", "name": "reader", "model": "embedded:kk-bo"}
    context = StageContext(recipe=recipe_of(tmp_path, baselines=[reader]))
    others = [Problem(task="task", problem_id=text, prompt=text) for text in ("to learn from", "to validate")]
    rows = [(PROBLEM, "test"), *((each, "train") for each in others)]
    context.run.write_problems(SplitProblem(problem=each, split=split) for each, split in rows)
    return context


def test_what_was_recorded_has_every_complete_pass_with_its_tables(context):
    record(context, "candidates", "a", "b")
    record(context, "regenerated/test-1", "c", pass_index=2)
    record(context, "regenerated/test-2", "unfinished", pass_index=2)
    context.run.finish("regenerated/test-1", {"fingerprint": context.basis("energies")})

    recorded = recorded_candidates(context, TEST)

    facts = {name: (each.energies and each.energies.members, each.scores) for name, each in recorded.items()}
    assert facts == {"a": ((1.0,), {"reader": 0.5}), "b": (None, {}), "c": ((1.0,), {"reader": 0.5})}
    assert recorded_labels(context, TEST).keys() == recorded.keys()


def test_a_candidate_that_was_never_checked_is_an_error(context):
    record(context, "candidates", "a", "b", checked=False)

    with pytest.raises(PoolError, match="2 candidates have no constraint report, the first is 'a'; run the label"):
        recorded_candidates(context, TEST)


def test_later_passes_that_another_policy_asks_for_are_missed_and_not_sampled(context):
    record(context, "candidates", "a")
    row = EnergyRow(candidate_id="a", members=(0.0, 9.0))
    context.run.write_records(ENERGIES, [row], "energies", "energies.parquet")
    written = default_policy(context).replaced(rule="paper", max_passes=2, theta_sigma=1.0, theta_abstain=9.0)
    context.run.write_json(written.to_json(), "calibration", "policy.json")

    with pytest.raises(PoolError, match=r"requests of later passes were never sent.*remove .*/passes/manifest.json"):
        outcomes_of(context)
