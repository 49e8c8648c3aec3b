"""What reports on single fields say about the candidates, and a guarantee about fields that is certified on them.

Every decision is about a form of two fields: seven of ten candidates give {"a": 1, "b": 5}, which is selected, two have
another a, and the last one lacks b. Numbers may differ by 0.5.
"""

import json

import pytest
from decisions_by_hand import record, report, stored_in

from raydebm.config import DecisionConfig
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy
from raydebm.decision.sampling.checks import check_candidate
from raydebm.errors import ConfigError
from raydebm.records import Candidate, Energies, Problem, ScoredCandidate
from raydebm.service.feedback import labelled_decisions, outcome_sample, recertified
from raydebm.service.store.reader import Filter
from raydebm.tasks.declared import DeclaredTask

FORM = DeclaredTask(
    {
        "name": "form",
        "instructions": "Answer in JSON.",
        "prompt": "{text}",
        "output": {"format": "json"},
        "gold": {"field": "gold", "match": "json", "tolerance": 0.5},
    }
)
POLICY = Policy(
    max_passes=1,
    rule="posterior",
    posterior=Posterior(weights={"votes": 1.0}, context_weights={"none": -30.0}, task="form"),
    tau_accept=0.6,
    tau_answer=0.6,
)
ANSWERS = [{"a": 1, "b": 5}] * 7 + [{"a": 2, "b": 5}] * 2 + [{"a": 1}]


def form(index):
    problem = Problem(task="form", problem_id=f"p{index}", prompt=f"form {index}", data={"text": f"form {index}"})
    pool = []
    for place, answer in enumerate(ANSWERS):
        candidate = Candidate(
            candidate_id=f"c{index}-{place}", task="form", problem_id=problem.problem_id, generator="ada",
            text=json.dumps(answer), sample_index=place,
        )  # fmt: skip
        checked = check_candidate(FORM, problem, candidate)
        energies = Energies(candidate_id=candidate.candidate_id, members=(float(place),))
        pool.append(ScoredCandidate(candidate=candidate, report=checked, energies=energies))
    return record(index, *pool, problem=problem, policy=POLICY, step_s=3600, versions={"checkpoint": "own"})


@pytest.fixture
def reported(tmp_path):
    """Stores decisions with a report each; returns their reader."""

    def store(*reports):
        decisions = [form(index) for index in range(len(reports))]
        reader = stored_in(tmp_path / "records", decisions)
        for decision, (correct, more) in zip(decisions, reports, strict=True):
            report(reader.outcomes, decision, correct, **more)
        return reader

    return store


def fields_of_labels(reader):
    (decision,) = labelled_decisions(reader, lambda _: FORM)
    labels = [decision.labels[scored.candidate.candidate_id] for scored in decision.pool]
    return [dict(labels[place].fields) for place in (0, 7, 9)]


def test_a_wrong_field_is_wrong_for_every_candidate_with_its_value(reported):
    assert fields_of_labels(reported((False, {"fields": {"a": {"correct": False}}}))) == [
        {"a": False}, {}, {"a": False},
    ]  # fmt: skip


@pytest.mark.parametrize("value", [2, 2.5], ids=["the same", "within the tolerance"])
def test_a_known_value_settles_the_field_of_every_candidate(reported, value):
    reader = reported((False, {"fields": {"a": {"correct": False, "value": value}}}))

    assert fields_of_labels(reader) == [{"a": False}, {"a": True}, {"a": False}]


def test_a_right_field_is_wrong_for_candidates_with_another_value_or_none(reported):
    reader = reported((False, {"fields": {"a": {"correct": True}, "b": {"correct": True}}}))

    assert fields_of_labels(reader) == [{"a": True, "b": True}, {"a": False, "b": True}, {"a": True, "b": False}]


def test_a_right_answer_settles_every_field(reported):
    assert fields_of_labels(reported((True, {}))) == [
        {"a": True, "b": True}, {"a": False, "b": True}, {"a": True, "b": False},
    ]  # fmt: skip


def certified(reader, **decision):
    sample = outcome_sample(reader, FORM, checkpoint="own", where=Filter())
    return recertified(sample, POLICY, DecisionConfig.model_validate(decision))


def test_settled_decisions_certify_the_fields(reported):
    """A bet of 80 right problems against 10 %: (1 / 0.9) ** 80 is far above 1 / 0.025."""
    fit = certified(reported(*[(True, {})] * 80), max_field_error=0.1)

    assert fit.field_guarantee.certified
    assert fit.policy.field_guarantee["outcomes"]["decisions"] == 80
    assert fit.policy.tau_field < 0.8


def test_decisions_with_an_unsettled_field_do_not_count(reported):
    partly = (False, {"fields": {"a": {"correct": False}}})

    fit = certified(reported(*[(True, {})] * 30, *[partly] * 10), max_field_error=0.1)

    assert fit.field_guarantee.problems == 30


def test_without_a_settled_decision_nothing_can_be_certified(reported):
    with pytest.raises(ConfigError, match="max_field_error"):
        certified(reported((False, {"fields": {"a": {"correct": False}}})), max_field_error=0.1)
