"""One run on a cluster, from an endpoint in a storm to the report; every test looks at another part of it."""

import json
from collections import Counter

import numpy as np
import pytest

from raydebm.pipeline.pools import calibrated_policy
from raydebm.pipeline.runner import Pipeline
from raydebm.pipeline.stages.passes import outcomes_of
from raydebm.records import Decision, Verdict
from raydebm.run.ensemble_file import read_ensemble_file
from raydebm.scorer.ensemble import EnsembleScorer

pytestmark = pytest.mark.ray
NUM_PROBLEMS = 22


def test_a_submitted_training_succeeds_and_leaves_an_ensemble(whole):
    assert "succeeded" in whole.output, whole.output
    assert read_ensemble_file(whole.run.uri("scorer"))["adapters"] == [
        "a0", "a1", "a2", "a3", "a4",
    ]  # fmt: skip


def test_five_adapters_have_shares_of_three_gpus(whole):
    """Two, two and one where all train at once; where processes start slowly, a share is used again."""
    gpus = Counter(adapter["gpu"] for adapter in whole.run.facts("scorer")["adapters"].values())

    assert gpus.total() == 5
    assert set(gpus) <= {"0", "1", "2"}


def test_adapters_learn_from_one_data_set_and_have_one_validation_set(whole):
    records = [json.loads(whole.run.read_bytes("scorer", f"a{index}", "training.json")) for index in range(5)]

    assert len({record["num_validation_problems"] for record in records}) == 1
    assert len({record["data_fingerprint"] for record in records}) == 1
    assert {len(record["epochs"]) for record in records} == {1}


def test_every_request_has_its_row_whatever_the_storm_did(whole):
    candidates = whole.run.candidates()

    assert Counter(candidate.generator for candidate in candidates) == {
        "fair": NUM_PROBLEMS * 3,
        "poor": NUM_PROBLEMS * 3,
    }
    assert sum(candidate.is_greedy for candidate in candidates) == NUM_PROBLEMS * 2


def test_requests_that_were_refused_for_good_are_rows_with_the_endpoints_reason(whole):
    failed = [candidate for candidate in whole.run.candidates() if candidate.text is None]

    assert 0 < len(failed) == len(whole.server.refused)
    assert {candidate.generator for candidate in failed} == {"fair"}
    assert all("must not be empty" in candidate.error for candidate in failed)


def test_every_answer_was_paid_for_once(whole):
    assert set(whole.server.answered.values()) == {1}


def test_faults_of_the_storm_were_met_and_asked_again(whole):
    assert max(whole.server.attempts.values()) == 2
    assert sum(count == 2 for count in whole.server.attempts.values()) > 20


def test_labels_are_those_of_the_gold(whole):
    golds = {gold.problem_id: gold for gold in whole.run.golds()}
    problems = whole.pipeline.problems()
    verdicts = {label.candidate_id: label.verdict for label in whole.run.labels()}
    judged = {
        candidate.candidate_id: whole.pipeline.task.judge(
            problems[candidate.problem_id], golds[candidate.problem_id], candidate.text
        ).verdict
        for candidate in whole.run.candidates()
        if candidate.text is not None
    }

    assert {name: verdicts[name] for name in judged} == judged
    assert {Verdict.CORRECT, Verdict.INCORRECT} <= set(judged.values())


def test_no_problem_is_in_two_splits(whole):
    ids = [problem_id for part in whole.pipeline.splits().values() for problem_id in part]

    assert len(ids) == len(set(ids)) == NUM_PROBLEMS


def test_energies_are_those_of_the_ensemble_on_disk(whole):
    stored = {energies.candidate_id: energies for energies in whole.run.energies()}
    problems = whole.pipeline.problems()
    scored = [candidate for candidate in whole.run.candidates() if candidate.candidate_id in stored][:8]
    scorer = EnsembleScorer.load(whole.run.uri("scorer"), device="cpu")
    energies = scorer.score([(problems[candidate.problem_id].prompt, candidate.text) for candidate in scored])

    assert len(scored) == 8
    np.testing.assert_allclose(
        [stored[candidate.candidate_id].members for candidate in scored], [one.members for one in energies], atol=1e-5
    )


def test_problems_that_were_regenerated_have_the_candidates_of_both_passes(whole):
    regenerated = [outcome for outcome in outcomes_of(whole.pipeline) if len(outcome.passes) == 2]

    assert regenerated
    for outcome in regenerated:
        assert {scored.candidate.pass_index for scored in outcome.pool} == {1, 2}


def test_feedback_of_a_broken_constraint_reached_the_generators(whole):
    told = [key for key in whole.server.answered if "Your answer breaks these rules" in key]

    assert told


def test_every_test_problem_is_decided(whole):
    outcomes = outcomes_of(whole.pipeline)

    assert [outcome.problem.problem_id for outcome in outcomes] == whole.pipeline.splits()["test"]
    assert {outcome.decision for outcome in outcomes} <= {Decision.ACCEPT, Decision.ABSTAIN}


def test_the_calibrated_policy_decides_by_the_papers_rule(whole):
    policy = calibrated_policy(whole.pipeline)

    assert (policy.rule, policy.max_passes) == ("paper", 2)
    assert policy.theta_sigma <= policy.theta_abstain


def test_the_report_and_its_figures_are_written(whole):
    metrics = json.loads(whole.run.read_bytes("evaluation", "metrics.json"))

    assert metrics["counts"]["problems"] == 8
    assert b"<svg" in whole.run.read_bytes("evaluation", "report.html")


def test_a_second_run_reuses_every_stage(whole):
    reports = []
    Pipeline(recipe=whole.recipe, on_stage=reports.append).evaluate()

    assert {report.reused for report in reports} == {True}


def test_every_stage_ran_once_in_order(whole):
    assert [report.stage for report in whole.reports if not report.reused] == [
        "energies", "scores", "calibration", "passes", "baselines", "evaluation",
    ]  # fmt: skip
    assert [report.stage for report in whole.reports if report.reused] == [
        "problems", "candidates", "labels", "pairs", "scorer",
    ]  # fmt: skip
