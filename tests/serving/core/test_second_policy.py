"""A second policy beside the first one: as a shadow, as a canary, in answers, records, files and metrics."""

import asyncio
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from raydebm.decision.evidence.posterior import Posterior
from raydebm.decision.policy import Policy, policy_id
from raydebm.decision.policy_history import PolicyHistory, SecondPolicy
from raydebm.decisions.reader import DecisionReader, Filter
from raydebm.decisions.record import record_of, record_row
from raydebm.decisions.writer import DecisionWriter
from raydebm.errors import ConfigError
from raydebm.records import Problem
from raydebm.run.directory import RunDir
from raydebm.serving.api.application import create_app
from raydebm.serving.core import service as service_module
from raydebm.serving.core.request import request_context
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.app_args import AppArgs
from raydebm.serving.settings.bundle import load_bundle
from raydebm.serving.settings.overrides import Overrides
from raydebm.serving.settings.rollout import is_canary

STRICT = Policy(num_regenerate=2, theta_sigma=0.8, theta_abstain=1.5)
LENIENT = Policy(num_regenerate=2, theta_sigma=10.0, theta_abstain=20.0)
"""Accepts an answer of any sigma at once, where ``STRICT`` asks again and then abstains."""
ROW = ("decision", "agrees", "num_passes", "num_candidates", "cost_usd")


class Kept:
    """A sink of records."""

    def __init__(self):
        self.records = []

    def put(self, record):
        self.records.append(record)
        return True


@pytest.fixture
def sink():
    return Kept()


@pytest.fixture
def run_of(write_run):
    """Makes a run whose first policy is strict and whose second one is lenient."""

    def make(percent=0.0, *, first=STRICT, second=LENIENT):
        root = write_run(policy=first)
        PolicyHistory(RunDir(root)).try_policy(second, percent=percent)
        return root

    return make


@pytest.fixture
def service_of(run_of, script, texts, energies, sink):
    """Makes a service of it, whose answers are right and unsure."""

    def make(percent=0.0, **policies):
        backend = script(lambda request: texts["right"], lambda text: energies["unsure"])
        bundle = load_bundle(AppArgs(run_dir=run_of(percent, **policies), policies={"one": {"max_passes": 1}}))
        return TriageService(bundle, backend, records=sink)

    return make


@pytest.fixture
def ask(service_of, puzzle, sink):
    """Decides about the puzzle; returns result and record."""

    def make(percent=0.0, *, changes=None, **policies):
        service = service_of(percent, **policies)
        overrides = Overrides.model_validate(changes or {})
        context = request_context(service.bundle, overrides, request_id="r", task_name=None, problem=puzzle)
        result = asyncio.run(service.triage(context))
        return result, sink.records[-1]

    return make


# ---- the shadow -----------------------------------------------------------------------------------------------------


def test_a_shadow_changes_nothing_in_the_answer(ask):
    result, record = ask()
    assert (result.decision, result.num_passes) == ("abstain", 2)
    assert (record.policy_role, record.versions["policy"]) == ("first", policy_id(STRICT))


def test_a_shadow_says_what_the_second_policy_would_have_decided(ask):
    _, record = ask()
    shadow = record.shadow
    assert tuple(getattr(shadow, name) for name in ROW) == ("accept", False, 1, 4, 2.0)  # 4 candidates at 0.5
    assert shadow.answer == '{"Ava": "knave", "Zoey": "knight"}'
    assert shadow.version == policy_id(LENIENT)
    assert shadow.exact


def test_a_shadow_calls_no_model(ask, backend, puzzle):
    ask()
    asked, scored = len(backend.requests), len(backend.scored)
    assert (asked, scored) == (6, 1)  # 2 + 2, then 2; every text is the same and scored once


def test_equal_decisions_agree(ask):
    _, record = ask(second=Policy(num_regenerate=2, theta_sigma=0.7, theta_abstain=1.4))
    assert (record.shadow.decision, record.shadow.agrees) == ("abstain", True)


def test_a_pass_that_was_not_sampled_is_not_guessed(ask):
    _, record = ask(first=LENIENT, second=STRICT)
    shadow = record.shadow
    assert (shadow.decision, shadow.as_it_stands, shadow.agrees) == ("regenerate", "abstain", None)


def test_another_answer_does_not_agree(script, service_of, texts, puzzle, sink):
    """The first policy weighs constraints, the second one does not."""
    service = service_of(first=Policy(num_regenerate=2, max_passes=1), second=Policy(lambda_=0.0, max_passes=1))
    script(
        lambda request: texts["right" if request.generator == "ada" else "wrong"],
        lambda text: (-1.0, -1.0) if "contradicts" in text else (-1.1, -1.1),
    )
    context = request_context(service.bundle, Overrides(), request_id="r", task_name=None, problem=puzzle)
    asyncio.run(service.triage(context))
    (record,) = sink.records
    assert (record.outcome.best.report.answer, record.shadow.answer) == (
        '{"Ava": "knave", "Zoey": "knight"}',
        '{"Ava": "knave", "Zoey": "knave"}',
    )
    assert record.shadow.agrees is False


def test_the_reason_why_a_shadow_would_have_stopped_is_kept(ask):
    _, record = ask(second=LENIENT.replaced(max_passes=1, waves=(2,), epsilon=0.3))
    assert (record.shadow.stop_reason, record.shadow.num_candidates) == ("accept", 2)  # of the four


def test_a_shadow_that_fails_costs_no_answer(ask, monkeypatch):
    def fail(*args, **kwargs):
        raise ZeroDivisionError

    monkeypatch.setattr(service_module, "shadow_of", fail)
    result, record = ask()
    assert (result.decision, record.policy_role, record.shadow) == ("abstain", "first", None)


def test_the_time_that_a_shadow_takes_is_a_stage(ask):
    result, _ = ask()
    assert result.stages_ms["shadow"] > 0


# ---- the canary -----------------------------------------------------------------------------------------------------


def test_a_canary_is_answered_by_the_second_policy_with_the_first_as_its_shadow(ask):
    result, record = ask(100.0)
    assert (result.decision, result.num_passes) == ("accept", 1)
    assert (record.policy_role, record.versions["policy"]) == ("canary", policy_id(LENIENT))
    assert (record.shadow.version, record.shadow.decision) == (policy_id(STRICT), "regenerate")


def second(percent, policy=LENIENT):
    return SecondPolicy(policy=policy, percent=percent, time=None)


def problems(num):
    return [Problem(task="gsm8k", problem_id=f"p{index}", prompt="") for index in range(num)]


@pytest.mark.parametrize(("percent", "expected"), [(0.0, 0), (100.0, 500)])
def test_no_share_and_the_whole_are_exact(percent, expected):
    assert sum(is_canary(second(percent), problem) for problem in problems(500)) == expected


def test_a_share_of_the_problems_is_assigned():
    """5,000 problems at 10 %: 500, and a standard deviation of 21."""
    assert 400 < sum(is_canary(second(10.0), problem) for problem in problems(5000)) < 600


def test_a_larger_share_has_the_problems_of_a_smaller_one():
    small, large = ([is_canary(second(percent), each) for each in problems(500)] for percent in (5.0, 20.0))
    assert all(after for before, after in zip(small, large, strict=True) if before)


def test_another_second_policy_has_other_problems():
    one, other = ([is_canary(second(50.0, policy), each) for each in problems(500)] for policy in (LENIENT, STRICT))
    assert one != other


def test_a_request_that_is_sent_again_gets_the_same_policy(service_of, puzzle, sink):
    service = service_of(50.0)
    for request_id in ("first", "again"):
        context = request_context(service.bundle, Overrides(), request_id=request_id, task_name=None, problem=puzzle)
        asyncio.run(service.triage(context))
    assert len({record.policy_role for record in sink.records}) == 1


# ---- what a request changes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"theta_sigma": 0.5}, {"max_passes": 1}, {"policy": "one"}])
def test_a_request_with_a_policy_of_its_own_is_no_part_of_a_trial(ask, changes):
    _, record = ask(100.0, changes=changes)
    assert (record.policy_role, record.shadow) == (None, None)
    assert record.versions["policy"] == policy_id(STRICT)


def test_limits_of_a_request_count_for_both_policies(ask):
    _, record = ask(changes={"budget": 3, "num_samples": 2})
    assert record.policy.budget == 3
    assert record.shadow.policy_id == policy_id(LENIENT.replaced(budget=3, deadline_ms=240_000))
    assert record.shadow.num_candidates == 3


def test_without_a_second_policy_nothing_is_said_of_one(client, puzzle):
    assert client.post("/v1/triage", {"problem": puzzle}).json()["policy_role"] is None


def test_the_argument_turns_the_second_policy_off(run_of):
    assert load_bundle(AppArgs(run_dir=run_of(5.0), second_policy=False)).second is None


# ---- over HTTP ------------------------------------------------------------------------------------------------------


def test_answers_say_which_policy_gave_them(service_of, client_of, puzzle):
    client = client_of(create_app(service_of(100.0)))
    answer = client.post("/v1/triage", {"problem": puzzle}).json()
    chat = client.post(
        "/v1/chat/completions",
        {"model": "raydebm/knights_knaves", "messages": [{"role": "user", "content": puzzle}]},
    ).json()
    for body in (answer, chat["raydebm"]):
        assert (body["policy_role"], body["versions"]["policy"]) == ("canary", policy_id(LENIENT))


def test_a_stored_decision_shows_its_shadow(run_of, script, texts, energies, client_of, puzzle):
    backend = script(lambda request: texts["right"], lambda text: energies["unsure"])
    bundle = load_bundle(AppArgs(run_dir=run_of()))
    writer = DecisionWriter(bundle.records.folder)
    client = client_of(create_app(TriageService(bundle, backend, records=writer)))
    record_id = client.post("/v1/triage", {"problem": puzzle}).json()["record_id"]
    writer.close()

    decision = client.get(f"/v1/decisions/{record_id}").json()
    assert (decision["policy_role"], decision["agrees"]) == ("first", False)
    assert (decision["shadow"]["decision"], decision["shadow"]["version"]) == ("accept", policy_id(LENIENT))
    assert client.get("/v1/decisions?agrees=false").json()["total"] == 1
    assert client.get("/v1/decisions?agrees=true").json()["total"] == 0
    assert client.get("/v1/decisions?policy_role=canary").json()["total"] == 0


# ---- records --------------------------------------------------------------------------------------------------------


def test_a_shadow_survives_being_stored(ask):
    _, record = ask()
    again = record_of(json.loads(json.dumps(record_row(record) | {"time": None})))
    assert (again.shadow, again.policy_role) == (record.shadow, "first")


def test_files_of_versions_without_shadows_are_read(ask, tmp_path):
    _, record = ask()
    writer = DecisionWriter(str(tmp_path / "records"))
    writer.put(record)
    writer.close()
    (file,) = Path(tmp_path, "records").glob("*.parquet")
    table = pq.read_table(file).drop_columns(["shadow", "policy_role", "agrees"])
    pq.write_table(table, file)

    reader = DecisionReader(str(tmp_path / "records"))
    (whole,) = reader.records()
    assert (whole.shadow, whole.policy_role) == (None, None)
    assert reader.get(record.record_id).outcome.decision == record.outcome.decision
    (row,) = reader.page().rows
    assert (row["policy_role"], row["agrees"]) == (None, None)
    assert reader.page(Filter(agrees=True)).total == 0
    assert reader.page(Filter(policy_role="first")).total == 0
    assert list(reader.records(Filter(policy_role="first"))) == []


# ---- bad policies ---------------------------------------------------------------------------------------------------


def test_a_second_policy_of_another_task_keeps_the_service_from_starting(run_of):
    posterior = Posterior(weights={"votes": 1.0}, context_weights={}, task="gsm8k")
    root = run_of(second=Policy(rule="posterior", posterior=posterior))
    with pytest.raises(ConfigError, match=r"second\.json\) was fitted for task 'gsm8k'"):
        load_bundle(AppArgs(run_dir=root))


def test_a_second_policy_on_evidence_that_is_not_at_hand_keeps_the_service_from_starting(run_of):
    posterior = Posterior(weights={"score:reader": 1.0}, context_weights={})
    root = run_of(second=Policy(rule="posterior", posterior=posterior))
    with pytest.raises(ConfigError, match="nothing measures here: reader"):
        load_bundle(AppArgs(run_dir=root))


def test_a_canary_with_a_limit_of_money_needs_prices(run_of):
    with pytest.raises(ConfigError, match="the second policy: "):
        load_bundle(AppArgs(run_dir=run_of(5.0, second=LENIENT.replaced(max_usd=1.0))))


def test_a_torn_second_policy_is_named_and_can_be_turned_off(run_of):
    root = run_of()
    Path(root, "policies", "second.json").write_text('{"policy":')
    with pytest.raises(ConfigError, match=r"second\.json is not JSON"):
        load_bundle(AppArgs(run_dir=root))
    assert load_bundle(AppArgs(run_dir=root, second_policy=False)).second is None
