"""The client's calls about policies, through either client, against a service that is a function."""

import asyncio
import json
from datetime import UTC, datetime

import httpx
import pytest

from raydebm_client import AsyncRaydebm, Raydebm, ServiceError

FIRST = {"version": "v1", "policy_id": "p1"}
SECOND = {"version": "v2", "policy_id": "p2", "percent": 5.0, "time": "2026-01-31T12:00:00Z", "reason": "fewer"}
CHANGE = {
    "number": 1,
    "time": "2026-01-31T12:00:00Z",
    "action": "promote",
    "reason": "p = 0.01",
    "by": "admin",
    "version": "v2",
    "replaced": "v1",
    "undoes": None,
}
FIGURES = {
    "version": "v1",
    "decided": 9,
    "answered": 8,
    "coverage": 0.9,
    "right": 3,
    "wrong": 1,
    "accuracy": 0.75,
    "accuracy_low": 0.2,
    "accuracy_high": 0.99,
    "candidates": 4.0,
    "cost_usd": None,
}
COMPARISON = {
    "first": FIGURES,
    "second": {**FIGURES, "version": "v2"},
    "num_decisions": 9,
    "num_outcomes": 4,
    "agreement": 0.5,
    "right": {"p_value": 1.0},
    "wrong": {"p_value": 1.0},
    "answered": {"p_value": 0.5},
    "outcomes_needed": 120,
    "margin": 0.05,
}


@pytest.fixture(params=["sync", "async"])
def ask(request):
    """``(answer, method, *args) -> (result, request that was sent)``, through either client."""

    def of(answer, name, *args, status=200, **kwargs):
        sent = []

        def service(received):
            sent.append(received)
            return httpx.Response(status, json=answer)

        transport = httpx.MockTransport(service)
        if request.param == "sync":
            with Raydebm("http://test", transport=transport) as client:
                return getattr(client.policies, name)(*args, **kwargs), sent[0]

        async def run():
            async with AsyncRaydebm("http://test", transport=transport) as client:
                return await getattr(client.policies, name)(*args, **kwargs)

        return asyncio.run(run()), sent[0]

    return of


def test_the_policies_are_listed_with_their_history(ask):
    policies, sent = ask({"first": FIRST, "second": SECOND, "history": [CHANGE]}, "list", task="gsm8k")

    assert (sent.method, str(sent.url)) == ("GET", "http://test/v1/policies?task=gsm8k")
    assert (policies.first.version, policies.first.percent, policies.second.percent) == ("v1", None, 5.0)
    assert (policies.history[0].action, policies.history[0].by) == ("promote", "admin")


def test_without_a_trial_there_is_no_second_policy(ask):
    policies, sent = ask({"first": FIRST, "second": None, "history": []}, "list")

    assert (str(sent.url), policies.second, policies.history) == ("http://test/v1/policies", None, [])


def test_a_trial_sends_the_policy_with_its_share(ask):
    trial, sent = ask({"second": SECOND, "applied": True}, "try_policy", {"rule": "paper"}, percent=5.0, reason="fewer")

    assert sent.url.path == "/v1/policies/try"
    assert json.loads(sent.content) == {"policy": {"rule": "paper"}, "percent": 5.0, "reason": "fewer"}
    assert (trial.second.version, trial.applied) == ("v2", True)


def test_a_dropped_trial_leaves_none(ask):
    trial, sent = ask({"second": None, "applied": True}, "drop", task="gsm8k")

    assert (sent.url.path, json.loads(sent.content)) == ("/v1/policies/drop", {"task": "gsm8k"})
    assert trial.second is None


@pytest.mark.parametrize(("method", "route"), [("promote", "promote"), ("roll_back", "rollback")])
def test_a_change_is_read_with_whether_it_is_applied(ask, method, route):
    reply, sent = ask({"change": CHANGE, "applied": False}, method, reason="p = 0.01")

    assert (sent.url.path, json.loads(sent.content)) == (f"/v1/policies/{route}", {"reason": "p = 0.01"})
    assert (reply.change.version, reply.change.replaced, reply.applied) == ("v2", "v1", False)


def test_a_comparison_reads_both_figures(ask):
    since = datetime(2026, 1, 31, tzinfo=UTC)
    comparison, sent = ask(COMPARISON, "compare", since=since, margin=0.02)

    assert dict(sent.url.params) == {"margin": "0.02", "since": "2026-01-31T00:00:00+00:00"}
    assert (comparison.first.accuracy, comparison.second.version, comparison.outcomes_needed) == (0.75, "v2", 120)
    assert comparison.raw["margin"] == 0.05


def test_who_is_no_admin_is_told_so(ask):
    refusal = {"error": {"message": "only an admin", "type": "x", "code": "not_admin", "param": None}}
    with pytest.raises(ServiceError, match="only an admin") as caught:
        ask(refusal, "promote", status=403)

    assert (caught.value.status, caught.value.code) == (403, "not_admin")
