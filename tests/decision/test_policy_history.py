"""The policies of a run: tried, promoted, rolled back; every file that can be torn."""

import json
import math
import threading
from pathlib import Path

import pytest

from raydebm.config import parse_recipe
from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy, policy_id
from raydebm.decision.policy_file import check_fits
from raydebm.decision.policy_history import PolicyHistory
from raydebm.errors import ConfigError
from raydebm.run.directory import RunDir
from raydebm.tasks import get_task

FIRST, SECOND, THIRD = (Policy(theta_sigma=value) for value in (0.1, 0.2, 0.3))


@pytest.fixture
def run(tmp_path):
    run = RunDir(str(tmp_path / "run"))
    run.write_json(FIRST.to_json(), "calibration", "policy.json")
    return run


@pytest.fixture
def history(run):
    return PolicyHistory(run)


def promoted(history, policy, **words):
    history.try_policy(policy, percent=10)
    return history.promote(**words)


# ---- trying ---------------------------------------------------------------------------------------------------------


def test_a_policy_on_trial_is_read_as_it_was_written(history):
    written = history.try_policy(SECOND, percent=12.5, reason="fewer refusals")
    assert history.second() == written
    assert (written.percent, written.reason, written.version) == (12.5, "fewer refusals", policy_id(SECOND))


def test_no_policy_is_on_trial_at_first(history):
    assert history.second() is None


@pytest.mark.parametrize("percent", [-0.1, 100.1, math.nan, math.inf])
def test_a_share_outside_of_0_to_100_is_refused(history, percent):
    with pytest.raises(ConfigError, match="percent must be between 0"):
        history.try_policy(SECOND, percent=percent)
    assert history.second() is None


def test_the_policy_in_force_cannot_be_tried(history):
    with pytest.raises(ConfigError, match="is in force already"):
        history.try_policy(FIRST, percent=5)


def test_a_trial_that_is_dropped_leaves_the_first_policy(history):
    history.try_policy(SECOND, percent=5)
    history.drop()
    assert (history.second(), history.first()) == (None, FIRST)


def test_a_trial_that_does_not_exist_cannot_be_dropped(history):
    with pytest.raises(ConfigError, match="no policy is on trial"):
        history.drop()


# ---- promoting and rolling back -------------------------------------------------------------------------------------


def test_a_promotion_puts_the_second_policy_in_force_and_ends_its_trial(history):
    change = promoted(history, SECOND, reason="p = 0.01", by="ops")
    assert (history.first(), history.second()) == (SECOND, None)
    assert history.changes() == [change]
    assert (change.number, change.action, change.reason, change.by) == (1, "promote", "p = 0.01", "ops")
    assert (change.version, change.replaced) == (policy_id(SECOND), FIRST)


def test_nothing_is_promoted_without_a_trial(history):
    with pytest.raises(ConfigError, match=r"nothing to promote; `raydebm policies try POLICY\.json --percent 5`"):
        history.promote()
    assert history.changes() == []


def test_a_roll_back_brings_the_replaced_policy_back(history):
    promoted(history, SECOND)
    change = history.roll_back(reason="complaints")
    assert history.first() == FIRST
    assert (change.number, change.action, change.undoes, change.replaced) == (2, "rollback", 1, SECOND)


def test_roll_backs_undo_promotions_from_the_newest_to_the_oldest(history):
    promoted(history, SECOND)
    promoted(history, THIRD)
    history.roll_back()
    assert history.first() == SECOND
    assert history.roll_back().undoes == 1
    assert history.first() == FIRST


def test_what_was_promoted_after_a_roll_back_is_rolled_back_first(history):
    promoted(history, SECOND)
    history.roll_back()
    promoted(history, THIRD)
    assert history.roll_back().undoes == 3
    assert history.first() == FIRST


def test_the_first_policy_of_all_cannot_be_rolled_back(history):
    promoted(history, SECOND)
    history.roll_back()
    with pytest.raises(ConfigError, match="no promotion is left to roll back"):
        history.roll_back()
    assert len(history.changes()) == 2


def test_a_promotion_that_died_before_the_trial_was_ended_says_so_when_it_is_repeated(run, history):
    promoted(history, SECOND)
    run.write_json(
        {"policy": SECOND.to_json(), "percent": 5, "time": "2026-01-01T00:00:00+00:00", "reason": ""},
        "policies",
        "second.json",
    )
    with pytest.raises(ConfigError, match="in force already; `raydebm policies drop` ends its trial"):
        history.promote()


def test_a_posterior_survives_promotion_and_roll_back(run, history):
    fitted = Policy(rule="posterior", posterior=Posterior(weights={"votes": 1.0}, context_weights={}, task="gsm8k"))
    run.write_json(fitted.to_json(), "calibration", "policy.json")
    promoted(history, SECOND)
    history.roll_back()
    assert history.first() == fitted


# ---- torn files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["", '{"policy": {', "[]", "{}", '{"policy": {"lamda": 1}, "percent": 5}'])
def test_a_torn_trial_is_named_with_its_remedy_and_can_be_dropped(run, history, content):
    history.try_policy(SECOND, percent=5)
    Path(run.root, "policies", "second.json").write_text(content)
    with pytest.raises(ConfigError, match=r"second\.json .*`raydebm policies try`, or remove it"):
        history.second()
    with pytest.raises(ConfigError, match=r"second\.json"):
        history.promote()
    history.drop()
    assert history.second() is None


@pytest.mark.parametrize("percent", [101, -1, "many", None])
def test_a_share_that_was_written_by_hand_is_checked(run, history, percent):
    history.try_policy(SECOND, percent=5)
    file = Path(run.root, "policies", "second.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "percent": percent}))
    with pytest.raises(ConfigError, match=r"second\.json is not a second policy"):
        history.second()


def test_a_torn_policy_in_force_is_named(run, history):
    history.try_policy(SECOND, percent=5)
    Path(run.root, "calibration", "policy.json").write_text('{"lambda": ')
    with pytest.raises(ConfigError, match=r"calibration/policy\.json is not JSON"):
        history.promote()
    assert history.changes() == []


@pytest.mark.parametrize("content", ["", "{", "{}", '{"action": "promote"}', '{"action": "demote"}'])
def test_a_torn_entry_of_the_history_stops_a_roll_back(run, history, content):
    promoted(history, SECOND)
    Path(run.root, "policies", "0001.json").write_text(content)
    with pytest.raises(ConfigError, match=r"0001\.json is not .*restore the file, or move it away"):
        history.roll_back()
    assert history.first() == SECOND


# ---- running services -----------------------------------------------------------------------------------------------


def test_requests_to_running_services_are_numbered(history):
    assert history.applied() == 0
    assert (history.apply(), history.apply(), history.applied()) == (1, 2, 2)


def test_a_torn_request_to_running_services_counts_as_none(run, history):
    history.apply()
    Path(run.root, "policies", "applied.json").write_text("{")
    assert history.applied() == 0


# ---- whether a policy fits a run ------------------------------------------------------------------------------------


def recipe(**changes):
    ada = {"kind": "openai", "name": "ada", "model": "m", "base_url": "http://127.0.0.1:9/v1", "api_key_env": None}
    tree = {"task": {"name": "gsm8k"}, "generators": [{**ada, **changes.pop("ada", {})}], **changes}
    return parse_recipe({"name": "tiny", "scorer": {"backbone": "embedded:encoder-mini"}, **tree})


def fitted(weights, *, context=None, task="gsm8k"):
    posterior = Posterior(weights=weights, context_weights=context or {}, task=task)
    return Policy(rule="posterior", posterior=posterior)


def test_a_policy_of_another_task_is_refused():
    with pytest.raises(ConfigError, match="it was fitted for task 'math500', and this is task 'gsm8k'; calibrate"):
        check_fits(fitted({"votes": 1.0}, task="math500"), recipe(), get_task("gsm8k"), what="it")


@pytest.mark.parametrize("policy", [Policy(), fitted({"votes": 1.0}), fitted({"votes": 1.0}, task="")])
def test_a_policy_of_the_task_or_of_none_fits(policy):
    check_fits(policy, recipe(), get_task("gsm8k"), what="it")


@pytest.mark.parametrize(
    ("policy", "missing"),
    [
        (fitted({"votes": 1.0, "score:reader": 0.5}), "reader"),
        (fitted({"votes": 1.0}, context={"pool_score:reader.entropy": 0.5}), "reader.entropy"),
        (fitted({"score:own_logprob": 0.5}), "own_logprob"),
    ],
)
def test_evidence_that_nothing_measures_is_named(policy, missing):
    with pytest.raises(ConfigError, match=f"rests on evidence that nothing measures here: {missing}; at hand: none"):
        check_fits(policy, recipe(), get_task("gsm8k"), what="it")


def test_evidence_without_weight_is_not_missed():
    check_fits(fitted({"votes": 1.0, "score:reader": 0.0}), recipe(), get_task("gsm8k"), what="it")


def test_log_probabilities_of_a_generator_are_at_hand():
    check_fits(fitted({"score:own_logprob": 0.5}), recipe(ada={"logprobs": True}), get_task("gsm8k"), what="it")


def test_parts_of_a_baselines_score_are_at_hand():
    reader = {"kind": "reader", "name": "reader", "model": "m"}
    known = recipe(baselines=[reader], triage={"rule": "posterior"})
    check_fits(fitted({"score:reader": 0.5, "score:reader.logprob": 0.5}), known, get_task("gsm8k"), what="it")
    with pytest.raises(ConfigError, match="readers; at hand: reader"):
        check_fits(fitted({"score:readers": 0.5}), known, get_task("gsm8k"), what="it")


# ---- several at a time ----------------------------------------------------------------------------------------------


def test_a_roll_back_waits_for_the_promotion_that_is_being_written(run, history, monkeypatch):
    """It begins when the promotion is about to write its entry, as another replica's may."""
    history.try_policy(SECOND, percent=10)
    write, begun = RunDir.write_json, []

    def write_slowly(self, value, *parts):
        if not begun:
            begun.append(threading.Thread(target=PolicyHistory(RunDir(run.root)).roll_back))
            begun[0].start()
            begun[0].join(timeout=0.2)
        write(self, value, *parts)

    monkeypatch.setattr(RunDir, "write_json", write_slowly)
    history.promote()
    begun[0].join()

    assert [(change.number, change.action, change.undoes) for change in history.changes()] == [
        (1, "promote", None),
        (2, "rollback", 1),
    ]
    assert history.first() == FIRST
