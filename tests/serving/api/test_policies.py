"""The policies of a service over HTTP: shown, compared, promoted and rolled back by an admin."""

import hashlib
from pathlib import Path

import pytest

from raydebm.decision.policy import Policy, policy_id
from raydebm.decision.policy_history import PolicyHistory
from raydebm.decisions.writer import DecisionWriter
from raydebm.errors import ConfigError
from raydebm.run.directory import RunDir
from raydebm.serving.access.keys import ApiKey, Keyring
from raydebm.serving.api.application import create_app
from raydebm.serving.core.service import TriageService
from raydebm.serving.settings.app_args import AppArgs
from raydebm.serving.settings.bundle import load_bundle
from raydebm_client import Raydebm

FIRST, SECOND = Policy(theta_sigma=0.8, max_passes=1), Policy(theta_sigma=10.0, theta_abstain=20.0, max_passes=1)
SHARE = {"first": policy_id(FIRST), "second": policy_id(SECOND)}
ADMIN, OTHER = {"Authorization": "Bearer admin-key"}, {"Authorization": "Bearer other-key"}


def key(name, **rights):
    return ApiKey(name=name, sha256=hashlib.sha256(f"{name}-key".encode()).hexdigest(), **rights)


@pytest.fixture
def root(write_run):
    return write_run(policy=FIRST)


@pytest.fixture
def history(root):
    return PolicyHistory(RunDir(root))


class Serving:
    """A service of the run directory that reads it again when it is told to."""

    def __init__(self, client_of, backend, args):
        self._client_of, self._backend, self._args, self.taken = client_of, backend, args, 0
        self.keyring = Keyring([key("admin", admin=True), key("other"), key("blind", decisions=False)])
        self.show()

    def show(self, **options):
        self.bundle = load_bundle(self._args)
        self.writer = DecisionWriter(self.bundle.records.folder)
        service = TriageService(self.bundle, self._backend, records=self.writer)
        options = {"keyring": self.keyring, "take_policies": self.take, **options}
        self.app = create_app(service, **options)
        self.client = self._client_of(self.app)

    async def take(self):
        self.taken += 1
        self.bundle = load_bundle(self._args)


@pytest.fixture
def serving(root, client_of, backend):
    def make(**args):
        return Serving(client_of, backend, AppArgs(run_dir=root, **args))

    return make


# ---- showing --------------------------------------------------------------------------------------------------------


def test_one_policy_is_shown_alone(serving):
    policies = serving().client.get("/v1/policies", headers=OTHER).json()
    assert (policies["first"]["version"], policies["second"], policies["history"]) == (policy_id(FIRST), None, [])


def test_the_second_policy_is_shown_with_its_share(serving, history):
    history.try_policy(SECOND, percent=5.0, reason="fewer refusals")
    second = serving().client.get("/v1/policies", headers=OTHER).json()["second"]
    assert (second["version"], second["percent"], second["reason"]) == (policy_id(SECOND), 5.0, "fewer refusals")
    assert second["policy_id"] == policy_id(SECOND.replaced(deadline_ms=240_000))


def test_a_torn_history_is_named(serving, history, root):
    history.try_policy(SECOND, percent=5.0)
    history.promote()
    client = serving().client
    Path(root, "policies", "0001.json").write_text("{")
    reply = client.get("/v1/policies", headers=OTHER)
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "policies_unusable")
    assert "0001.json is not JSON" in reply.json()["error"]["message"]


# ---- changing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["promote", "rollback"])
@pytest.mark.parametrize("headers", [OTHER, {"Authorization": "Bearer blind-key"}])
def test_only_an_admin_changes_the_policy(serving, history, action, headers):
    history.try_policy(SECOND, percent=5.0)
    reply = serving().client.post(f"/v1/policies/{action}", {}, headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "not_admin")
    assert (history.first(), history.changes()) == (FIRST, [])


def test_without_keys_nobody_is_an_admin(serving, history):
    history.try_policy(SECOND, percent=5.0)
    service = serving()
    service.show(keyring=None)
    assert service.client.post("/v1/policies/promote", {}).status_code == 403
    assert history.first() == FIRST


def test_a_promotion_is_taken_at_once(serving, history):
    history.try_policy(SECOND, percent=5.0)
    service = serving()
    body = service.client.post("/v1/policies/promote", {"reason": "p = 0.01"}, headers=ADMIN).json()
    assert (body["applied"], service.taken, service.bundle.versions["policy"]) == (True, 1, policy_id(SECOND))
    change = body["change"]
    assert (change["action"], change["reason"], change["by"]) == ("promote", "p = 0.01", "admin")
    assert (change["version"], change["replaced"]) == (policy_id(SECOND), policy_id(FIRST))
    assert history.applied() == 1  # so that the other replicas follow


def test_a_roll_back_is_taken_at_once(serving, history):
    history.try_policy(SECOND, percent=5.0)
    history.promote()
    service = serving()
    body = service.client.post("/v1/policies/rollback", {}, headers=ADMIN).json()
    assert (body["change"]["undoes"], service.bundle.versions["policy"]) == (1, policy_id(FIRST))


def test_a_service_that_cannot_read_again_takes_it_at_its_next_change(serving, history):
    history.try_policy(SECOND, percent=5.0)
    service = serving()
    service.show(take_policies=None)
    assert service.client.post("/v1/policies/promote", {}, headers=ADMIN).json()["applied"] is False
    assert history.first() == SECOND


def promoted_twice(history):
    """Policies of which each replaced the one before it."""
    policies = [FIRST, SECOND, SECOND.replaced(theta_sigma=11.0)]
    for policy in policies[1:]:
        history.try_policy(policy, percent=5.0)
        history.promote()
    return policies


def test_one_call_of_the_client_undoes_one_promotion_though_no_replica_takes_it(serving, history, free_port, listening):
    policies, service = promoted_twice(history), serving()

    async def refused():
        raise ConfigError("keys.yaml is not YAML: secret-free words")

    service.show(take_policies=refused)
    with listening(service.app, free_port) as url, Raydebm(url, api_key="admin-key") as client:
        done = client.policies.roll_back(reason="refuses too much")

    assert (done.applied, done.not_applied) == (False, "keys.yaml is not YAML: secret-free words")
    assert [change.action for change in history.changes()] == ["promote", "promote", "rollback"]
    assert history.first() == policies[1]


def test_what_fails_for_no_known_reason_after_it_was_written_is_an_answer_too(serving, history):
    async def broken():
        raise OSError("/mnt/secret is away")

    service = serving()
    service.show(take_policies=broken)
    body = {"policy": SECOND.to_json()}
    reply = service.client.post("/v1/policies/try", body, headers=ADMIN)
    assert (reply.status_code, reply.json()["applied"], reply.json()["not_applied"]) == (200, False, "OSError")
    assert history.second().policy == SECOND


def test_a_change_that_may_have_been_made_is_not_repeated(serving, history, monkeypatch):
    promoted_twice(history)
    roll_back, headers = PolicyHistory.roll_back, {**ADMIN, "Idempotency-Key": "k"}

    def torn(self, **facts):
        roll_back(self, **facts)
        raise OSError("no space left")

    monkeypatch.setattr(PolicyHistory, "roll_back", torn)
    client = serving().client
    replies = [client.post("/v1/policies/rollback", {}, headers=headers) for _ in range(2)]

    assert [reply.status_code for reply in replies] == [503, 503]
    assert (replies[0].headers["x-should-retry"], len(history.changes())) == ("false", 3)


@pytest.mark.parametrize(
    ("action", "words"), [("promote", "no policy is on trial"), ("rollback", "no promotion is left to roll back")]
)
def test_what_is_not_possible_is_said(serving, history, action, words):
    service = serving()
    reply = service.client.post(f"/v1/policies/{action}", {}, headers=ADMIN)
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "policies_unusable")
    assert words in reply.json()["error"]["message"]
    assert service.taken == 0


def test_a_second_policy_that_was_exchanged_for_one_that_does_not_fit_is_not_promoted(serving, history):
    history.try_policy(SECOND, percent=5.0)
    client = serving().client
    other = Policy.from_json({**SECOND.to_json(), "posterior": posterior_of("gsm8k")})
    history.try_policy(other, percent=5.0)
    reply = client.post("/v1/policies/promote", {}, headers=ADMIN)
    assert (reply.status_code, history.first()) == (409, FIRST)
    assert "fitted for task 'gsm8k'" in reply.json()["error"]["message"]


def posterior_of(task):
    from raydebm.decision.evidence.posterior import Posterior

    return Posterior(weights={"votes": 1.0}, context_weights={}, task=task).to_json()


def test_a_service_with_a_given_policy_refuses(serving, history):
    history.try_policy(SECOND, percent=5.0)
    reply = serving(policy="recipe").client.post("/v1/policies/promote", {}, headers=ADMIN)
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "policy_is_given")
    assert history.first() == FIRST


def test_a_trial_begins_and_ends_at_once(serving, history):
    service = serving()
    body = {"policy": SECOND.to_json(), "percent": 5.0, "reason": "fewer refusals"}
    begun = service.client.post("/v1/policies/try", body, headers=ADMIN).json()
    assert (begun["second"]["version"], begun["second"]["percent"], begun["applied"]) == (policy_id(SECOND), 5.0, True)
    assert service.bundle.second.policy == history.second().policy == SECOND
    ended = service.client.post("/v1/policies/drop", {}, headers=ADMIN).json()
    assert (ended["second"], service.bundle.second, history.second()) == (None, None, None)
    assert (ended["applied"], ended["not_applied"]) == (True, None)


@pytest.mark.parametrize("body", [{"policy": FIRST.to_json()}, {"policy": {"theta_sigme": 1}}], ids=["same", "typo"])
def test_what_cannot_be_tried_is_refused(serving, history, body):
    reply = serving().client.post("/v1/policies/try", body, headers=ADMIN)
    expected = (409, "policies_unusable") if body["policy"] == FIRST.to_json() else (400, "bad_policy")
    assert (reply.status_code, reply.json()["error"]["code"]) == expected
    assert history.second() is None


@pytest.mark.parametrize("action", ["try", "drop"])
def test_only_an_admin_tries_a_policy(serving, history, action):
    body = {"policy": SECOND.to_json()} if action == "try" else {}
    assert serving().client.post(f"/v1/policies/{action}", body, headers=OTHER).status_code == 403
    assert history.second() is None


def test_a_task_that_is_not_served_has_no_policies(serving):
    reply = serving().client.get("/v1/policies?task=taco", headers=OTHER)
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "unknown_task")


# ---- comparing ------------------------------------------------------------------------------------------------------


@pytest.fixture
def compared(serving, history, script, texts, energies, puzzle):
    """A service whose first policy refused a right answer that its second one would have given out, with the report."""
    history.try_policy(SECOND, percent=0.0)
    script(lambda request: texts["right"], lambda text: energies["unsure"])
    service = serving()
    answer = service.client.post("/v1/triage", {"problem": puzzle}, headers=OTHER).json()
    service.writer.flush()
    report = {"correct": True, "by": "audit"}
    reply = service.client.post(f"/v1/decisions/{answer['record_id']}/outcome", report, headers=OTHER)
    assert reply.status_code == 200, reply.text
    yield service.client
    service.writer.close()


def test_two_policies_are_compared(compared):
    body = compared.get("/v1/policies/comparison", headers=OTHER).json()
    assert {name: body[name]["version"] for name in SHARE} == SHARE
    assert (body["num_decisions"], body["num_differ"], body["num_outcomes"], body["agreement"]) == (1, 1, 1, 0.0)
    assert (body["first"]["answered"], body["second"]["answered"]) == (0, 1)
    assert (body["second"]["right"], body["second"]["accuracy"]) == (1, 1.0)
    costs = [body[name]["cost_per_right_usd"] for name in SHARE]
    assert costs == [None, 2.0]  # four candidates of 0.5 each; the first gave no right answer
    assert (body["second"]["accuracy_low"], body["second"]["accuracy_high"]) == (pytest.approx(0.025), 1.0)
    assert (body["right"]["difference"]["value"], body["right"]["p_value"]) == (1.0, 1.0)


def test_a_pair_is_named(compared):
    first, second = SHARE.values()
    assert compared.get(f"/v1/policies/comparison?first={first}&second={second}", headers=OTHER).status_code == 200
    reply = compared.get("/v1/policies/comparison?first=x&second=y", headers=OTHER)
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "no_pairs")
    assert compared.get("/v1/policies/comparison?first=x", headers=OTHER).json()["error"]["code"] == "bad_pair"


@pytest.mark.parametrize("margin", ["0", "1", "-0.1", "nan"])
def test_a_margin_outside_of_0_to_1_is_refused(compared, margin):
    assert compared.get(f"/v1/policies/comparison?margin={margin}", headers=OTHER).status_code == 400


def test_who_may_not_see_decisions_may_not_compare(compared):
    reply = compared.get("/v1/policies/comparison", headers={"Authorization": "Bearer blind-key"})
    assert reply.status_code == 403


def test_a_service_without_two_policies_has_nothing_to_compare(serving):
    reply = serving().client.get("/v1/policies/comparison", headers=OTHER)
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "no_pairs")


def test_a_service_that_stores_nothing_has_nothing_to_compare(root, backend, client_of):
    app = create_app(TriageService(load_bundle(AppArgs(run_dir=root, records=None)), backend))
    assert client_of(app).get("/v1/policies/comparison").json()["error"]["code"] == "no_records"
