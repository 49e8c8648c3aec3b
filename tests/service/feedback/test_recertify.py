"""A guarantee certified on what users reported, and what a report can and cannot say.

The policy selects by votes, and its confidence is the share of the candidates that give the answer.
"""

import json
import math
from dataclasses import replace

import pytest
from reported_decisions import BY_SHARE, POLICY, RECIPE, RIGHT, WRONG, record

from raydebm.config import DecisionConfig, parse_recipe
from raydebm.decision.policy import Policy
from raydebm.errors import ConfigError, PoolError
from raydebm.records import Problem
from raydebm.run.directory import RunDir
from raydebm.run.ensemble_file import fingerprint_of
from raydebm.run.fingerprints import current_manifest, new_manifest
from raydebm.service.feedback import outcome_sample, recertified
from raydebm.service.store.reader import Filter
from raydebm.tasks import get_task


def sample_of(reader, **options):
    return outcome_sample(reader, get_task("gsm8k"), checkpoint="own", where=Filter(), **options)


def fit(reader, *, policy=POLICY, **decision):
    config = DecisionConfig.model_validate({"max_error": 0.1, **decision})
    return recertified(sample_of(reader), policy, config)


def unanimous(count, *, wrong=(), start=0):
    return [(record(index), WRONG if index in wrong else RIGHT) for index in range(start, start + count)]


# ---- what is certified ---------------------------------------------------------------------------------------------


def test_right_answers_certify_the_policy_in_force(reader):
    """60 right answers: 0.9 ** 60 = 0.002 is below 0.025."""
    fitted = fit(reader(unanimous(60)))

    assert fitted.policy.posterior == BY_SHARE
    assert fitted.policy.tau_answer == pytest.approx(1.0, abs=1e-5)
    assert (fitted.guarantee.certified, fitted.guarantee.answered, fitted.guarantee.wrong) == (True, 60, 0.0)


def test_fewer_outcomes_than_a_guarantee_needs_say_how_many_more_would_do(reader):
    fitted = fit(reader(unanimous(20)))

    assert (fitted.guarantee.certified, fitted.policy.guarantee["certified"]) == (False, False)
    assert 0.9 ** (20 + fitted.guarantee.more_problems) <= 0.025 < 0.9**20
    assert fitted.policy.tau_answer == 1.0


def test_thresholds_rise_where_errors_are(reader):
    """Half of the answers at a share of 0.7 are wrong, none at 1."""
    weak = [(record(index, 7), WRONG if index % 2 else RIGHT) for index in range(100, 160)]

    fitted = fit(reader(unanimous(80) + weak))

    assert fitted.policy.tau_answer > 0.9
    assert fitted.guarantee.answered == 80


# ---- what a report says --------------------------------------------------------------------------------------------


def test_an_answer_that_nobody_judged_counts_as_wrong(reader):
    """3 was given out and is wrong, which does not say that 2, which the votes select, is right."""
    pairs = [(record(index, 9, selected=3), WRONG) for index in range(10)]

    fitted = fit(reader(pairs))

    assert fitted.worth.tolist() == [0.0] * 10


def test_a_correct_answer_labels_the_selection_of_another_policy(reader):
    pairs = [(record(index, 9, selected=3), (WRONG, "ada", "#### 2")) for index in range(10)]

    fitted = fit(reader(pairs))

    assert fitted.worth.tolist() == [1.0] * 10


def test_a_pass_that_nobody_drew_counts_as_a_wrong_answer(reader):
    """These costs answer from 0.95 on, so that at 0.9 the policy draws again; no second pass is recorded."""
    pairs = [*unanimous(60), *((record(index, 9), RIGHT) for index in range(100, 110))]

    fitted = fit(reader(pairs), policy=POLICY.replaced(max_passes=2), max_error=None, costs={"wrong": 19.0})

    assert fitted.policy.tau_accept >= 0.95
    assert fitted.worth.tolist() == [1.0] * 60 + [0.0] * 10
    assert fitted.confidence[60:].tolist() == [1.0] * 10


def test_a_policy_of_two_passes_is_certified_on_decisions_that_ended_after_the_first(reader):
    """80 right answers with a share of 0.9; their second pass was never sampled, so it guarantees nothing."""
    fitted = fit(reader([(record(index, 9), RIGHT) for index in range(80)]), policy=POLICY.replaced(max_passes=2))

    assert (fitted.guarantee.certified, fitted.guarantee.answered, fitted.guarantee.wrong) == (True, 80, 0.0)
    assert fitted.policy.tau_accept == pytest.approx(0.9, abs=1e-5)


def test_a_guarantee_above_tau_accept_is_certified_for_a_policy_with_waves(reader):
    """The policy ends its waves at 0.6; all answers are unanimous, so that the guarantee is at 1."""
    fitted = fit(reader(unanimous(60)), policy=POLICY.replaced(waves=(4, 4)))

    assert fitted.policy.tau_accept >= fitted.policy.tau_answer > 0.99
    assert (fitted.guarantee.certified, fitted.guarantee.answered, fitted.guarantee.wrong) == (True, 60, 0.0)


# ---- who reports ---------------------------------------------------------------------------------------------------


def test_no_threshold_answers_what_was_refused(reader):
    """Nobody judged the refused request of share 0.8, so nothing is certified at or below it."""
    pairs = [*unanimous(60), *((record(index, 7), RIGHT) for index in range(100, 160))]
    refused = (record(500, 8, accepted=False), None)

    assert fit(reader(pairs)).policy.tau_answer == pytest.approx(0.7, abs=1e-5)
    assert fit(reader([refused])).policy.tau_answer == pytest.approx(1.0, abs=1e-5)


def test_the_calibration_keeps_the_confidence_below_which_nothing_is_guaranteed(reader):
    """The refused request has a share of 0.8; without one there is no floor."""
    refused = record(500, 8, accepted=False)

    assert fit(reader(unanimous(60))).floor == -math.inf
    assert fit(reader([(refused, None)])).floor == pytest.approx(0.8, abs=1e-5)


# ---- what is left out ----------------------------------------------------------------------------------------------


def test_a_problem_counts_once_by_its_newest_decision(reader):
    same = Problem(task="gsm8k", problem_id="p", prompt="What is it?")
    pairs = [(record(0, problem=same), WRONG), (record(1, problem=same), RIGHT), *unanimous(5, start=10)]

    sample = sample_of(reader(pairs))

    assert (len(sample.decisions), sample.repeated) == (6, 1)
    assert [decision.correct for decision in sample.decisions if decision.problem == same] == [True]


def test_decisions_of_another_ensemble_are_left_out(reader):
    pairs = [*unanimous(5), (record(9, checkpoint="other"), RIGHT)]

    sample = sample_of(reader(pairs))

    assert (len(sample.decisions), sample.other_ensemble) == (5, 1)


@pytest.mark.parametrize(
    ("pairs", "options", "message"),
    [
        ([(0, {}, None)], {}, "none of 1 stored decisions of 'gsm8k' in .* has an outcome .* report some"),
        ([(0, {}, RIGHT)], {"by": ("audit",)}, "has an outcome by audit"),
        ([(0, {"task": "math500"}, RIGHT)], {}, "none of 0 .*other tasks there: math500"),
        ([(0, {"share": 5}, RIGHT)], {}, "none can be used: .* 1 are about abstentions"),
        ([(0, {"checkpoint": "other"}, RIGHT)], {}, "none can be used: .* 1 were scored by another ensemble"),
        ([(0, {}, (WRONG, "ada", "#### 2"))], {}, "none can be used: 1 contradict themselves"),
    ],
    ids=["no outcome", "nobody of that name", "another task", "abstentions", "another ensemble", "faults"],
)
def test_nothing_to_learn_from_is_an_error_that_says_why(reader, pairs, options, message):
    stored = reader([(record(index, **given), report) for index, given, report in pairs])

    with pytest.raises(PoolError, match=message):
        sample_of(stored, **options)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Policy(), "decides by the paper's rule"),
        (POLICY.replaced(posterior=replace(BY_SHARE, task="musr")), "was fitted for task 'musr'"),
    ],
    ids=["paper", "another task"],
)
def test_a_policy_without_a_confidence_for_this_task_is_refused(reader, policy, message):
    with pytest.raises(ConfigError, match=message):
        fit(reader(unanimous(5)), policy=policy)


# ---- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    """A run that is complete up to its policy, and its recipe as a file."""
    recipe = parse_recipe({**RECIPE, "run_dir": str(tmp_path / "run")})
    made = RunDir(str(tmp_path / "run"))
    for stage in ("problems", "candidates", "labels", "pairs", "scorer", "energies", "scores", "calibration"):
        made.finish(stage, new_manifest(stage, recipe, made, facts={}))
    made.write_json({"adapters": []}, "scorer", "ensemble.json")
    made.write_json(POLICY.to_json(), "calibration", "policy.json")
    (tmp_path / "recipe.json").write_text(json.dumps(recipe.model_dump(mode="json", by_alias=True)))
    return made


@pytest.fixture
def calibrate(run, reader, tmp_path, raydebm):
    """Runs the command on stored pairs; returns the exit code and what it printed."""

    def command(pairs, *arguments):
        records = reader(pairs).root
        done = raydebm("calibrate", "--config", tmp_path / "recipe.json", "--from-decisions", records, *arguments)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    return command


def own_records(count, **options):
    checkpoint = fingerprint_of({"adapters": []})
    return [(record(index, checkpoint=checkpoint, **options), RIGHT) for index in range(count)]


def test_the_command_writes_the_policy_to_the_run(calibrate, run, tmp_path):
    before = run.manifest("calibration")["making"]

    code, printed = calibrate(own_records(60), "--max-error", "0.1")

    assert code == 0, printed
    guarantee = Policy.from_json(run.read_json("calibration", "policy.json")).guarantee
    period = {"since": "2026-05-01T12:00:00+00:00", "until": "2026-05-03T23:00:00+00:00"}
    assert guarantee["certified"]
    assert guarantee["outcomes"] == {"decisions": 60, **period, "by": None}
    assert run.manifest("calibration")["making"] != before
    recipe = parse_recipe({**RECIPE, "run_dir": str(tmp_path / "run")})  # whose next run keeps the policy
    assert current_manifest("calibration", recipe, run)["facts"]["outcomes"]["decisions"] == 60
    assert "60 decisions with an outcome, of which 60 count, made from 2026-05-01 to 2026-05-03" in printed
    assert "every counted answer has the same outcome" in printed
    assert "This holds for decisions like the reported ones" in printed
    sentence = (
        "With confidence 0.9, the error (share of wrong answers, or mean violation) of the returned answers is at "
        "most 10.0%, with 100% of the problems answered; a service reads this policy when it starts."
    )
    assert printed.endswith(sentence)


def test_what_is_not_certified_leaves_the_policy_as_it_is(calibrate, run):
    before = run.manifest("calibration"), run.read_json("calibration", "policy.json")

    code, printed = calibrate(own_records(20), "--max-error", "0.1")

    assert (code, run.manifest("calibration"), run.read_json("calibration", "policy.json")) == (1, *before)
    assert "Not certified: an error (share of wrong answers, or mean violation) of at most 10.0%." in printed
    assert "answering all of them has an error of 0.0%, so no rule could answer more than 100%." in printed
    assert f"Nothing is certified, so {run.uri('calibration', 'policy.json')} is unchanged" in printed


def test_what_is_not_certified_is_written_by_force(calibrate, run):
    code, printed = calibrate(own_records(20), "--max-error", "0.1", "--force")

    assert code == 0, printed
    assert not Policy.from_json(run.read_json("calibration", "policy.json")).guarantee["certified"]


def test_the_command_refuses_a_recipe_that_did_not_make_the_run(calibrate):
    code, printed = calibrate(own_records(60), "seed=5")

    assert (code, "made with other settings" in printed) == (2, True)


@pytest.mark.parametrize("options", [["--by", "ada"], ["--since", "2026-01-01T00:00Z"]])
def test_options_about_outcomes_need_the_decisions(tmp_path, run, raydebm, options):
    done = raydebm("calibrate", "--config", tmp_path / "recipe.json", *options)

    assert done.returncode == 2
    assert f"{options[0]} selects reported outcomes; give --from-decisions" in done.stderr
