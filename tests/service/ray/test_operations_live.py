"""Traces and changes of the running service on real Serve: an OTLP receiver, an endpoint, other adapters under load."""

import copy
import itertools
import json
import shutil
import threading
from pathlib import Path

import pytest
from live_service import POLICIES
from ray.serve.schema import ServeDeploySchema

from raydebm.service.routes.openapi import PUZZLE

pytestmark = [pytest.mark.ray, pytest.mark.slow]

TRACE_ID, CLIENT_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SHIFT = 10.0
"""What the second ensemble adds to every energy of the first."""


def shifted(source, target):
    """The same ensemble with SHIFT added to every energy, as other training would leave it."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, target)
    for head in target.glob("*/head.safetensors"):
        weights = load_file(head)
        weights["out.bias"] += SHIFT
        save_file(weights, head)
    record = json.loads((target / "ensemble.json").read_text())
    record["meta"]["name"] = "shifted"
    (target / "ensemble.json").write_text(json.dumps(record))
    return target


# ---- traces ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def collector(live_service):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra raydebm[otel] is not installed")
    return live_service.collector


@pytest.fixture(scope="module")
def trace(live_service, collector, eventually):
    """The spans of one request to the endpoint's generator, which nobody else asks."""
    sent = {"traceparent": f"00-{TRACE_ID}-{CLIENT_SPAN}-01", "X-Request-ID": "traced-1"}
    reply = live_service.ask(PUZZLE, "endpoint-only", num_samples=2, headers=sent)
    assert reply.status_code == 200, reply.text
    names = {"POST /v1/triage", "triage", "pass", "generate", "check", "score"}
    names |= {"generator", "candidate", "constraints", "ensemble"}

    def complete():
        spans = collector.spans(TRACE_ID)
        span_names = [span.name for span in spans]
        parents = {span.span_id for span in spans} | {CLIENT_SPAN}
        return (
            names <= set(span_names)
            and span_names.count("candidate") == 2
            and {span.parent_id for span in spans} <= parents
        )

    assert eventually(complete), [span.name for span in collector.spans(TRACE_ID)]
    return collector.spans(TRACE_ID)


def one(trace, name):
    spans = [span for span in trace if span.name == name]
    assert len(spans) == 1, [span.name for span in trace]
    return spans[0]


@pytest.mark.parametrize(
    ("child", "parent"),
    [
        ("triage", "POST /v1/triage"),
        ("pass", "triage"),
        ("generate", "pass"),
        ("generator", "generate"),
        ("candidate", "generator"),
        ("constraints", "check"),
        ("ensemble", "score"),
    ],
)
def test_every_part_of_the_work_has_its_span_below_what_asked_for_it(trace, child, parent):
    parents = {span.span_id for span in trace if span.name == parent}
    children = [span for span in trace if span.name == child]
    assert children
    assert {span.parent_id for span in children} <= parents


def test_no_text_of_a_problem_or_a_candidate_leaves_with_a_trace(trace, collector):
    for words in (b"inhabited", b'knave"', b"Zoey"):
        assert not any(words in body for body in collector.bodies)


# ---- changes --------------------------------------------------------------------------------------------------------


@pytest.fixture
def state(live_service, healthy):
    """What a change changes: the health's part of it, and the named policies."""

    def read():
        told = healthy()
        options = live_service.get("/v1/options").json()
        return {
            **{name: told[name] for name in ("versions", "warnings")},
            **{name: options[name] for name in ("policies", "named_policies")},
        }

    return read


_REVISIONS = itertools.count(1)


@pytest.fixture
def change(live_service, state, eventually):
    """As ``serve deploy`` with another ``user_config`` of the ingress. After the test the service is as it was."""
    from ray.serve.context import _get_global_client

    before = state()

    def deploy(**user_config):
        tree = copy.deepcopy(live_service.tree)
        ingress = tree["applications"][0]["deployments"][0]
        assert ingress["name"] == "TriageIngress"
        ingress["user_config"] = user_config
        _get_global_client().deploy_apps(ServeDeploySchema.model_validate(tree), _blocking=False)

    yield deploy
    deploy(revision=next(_REVISIONS))
    assert eventually(lambda: state() == before), state()


@pytest.fixture
def shifted_adapters(live_service, tmp_path):
    return shifted(Path(live_service.run_dir) / "scorer", tmp_path / "shifted")


class Load:
    """Clients that ask without a pause; every answer is kept."""

    def __init__(self, live_service, puzzle, *, clients=3):
        self.replies, self._ending, self._service, self._puzzle = [], threading.Event(), live_service, puzzle
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(clients)]

    def _ask(self):
        while not self._ending.is_set():
            self.replies.append(self._service.ask(self._puzzle, return_candidates=True))

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception):
        self._ending.set()
        for thread in self._threads:
            thread.join(timeout=120)


def members_of(reply):
    return {candidate["candidate_id"]: candidate["members"] for candidate in reply.json()["candidates"]}


def test_adapters_and_policy_change_under_load_and_no_request_fails_or_mixes_them(
    live_service, puzzle, healthy, state, change, shifted_adapters, tmp_path, eventually
):
    before = healthy()
    policy = {**state()["policies"]["knights_knaves"], "theta_sigma": 500.0}
    (tmp_path / "policy.json").write_text(json.dumps(policy))
    with Load(live_service, puzzle) as load:
        assert eventually(lambda: len(load.replies) >= 3)
        change(checkpoint=str(shifted_adapters), policy=str(tmp_path / "policy.json"), policies=POLICIES)
        assert eventually(lambda: healthy()["versions"] != before["versions"])
        count = len(load.replies)
        assert eventually(lambda: len(load.replies) >= count + 6)  # those that had begun, and some more
    after = healthy()
    assert {reply.status_code for reply in load.replies} == {200}
    assert state()["policies"]["knights_knaves"]["theta_sigma"] == 500.0
    assert after["warnings"] == []

    by_version = {}
    for reply in load.replies:
        versions = reply.json()["versions"]
        by_version.setdefault((versions["checkpoint"], versions["policy"]), []).append(members_of(reply))
    old, new = ((health["versions"]["checkpoint"], health["versions"]["policy"]) for health in (before, after))
    assert set(by_version) == {old, new}
    first = by_version[old][0]
    for shift, answers in ((0.0, by_version[old]), (SHIFT, by_version[new])):
        for members in answers:  # every candidate of both passes, by the ensemble that the answer names
            for name, energies in members.items():
                assert energies == pytest.approx([energy + shift for energy in first[name]], abs=1e-3)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"checkpoint": "/nowhere/scorer"}, "does not contain a trained ensemble"),
        ({"policy": "/nowhere/policy.json"}, "does not exist"),
        ({"device": "cpu"}, "cannot be changed while the service runs"),
        ({"policies": {"odd": {"theta_sigma": -1}}}, "theta_sigma"),
    ],
    ids=["adapters", "policy", "key", "named-policy"],
)
def test_a_bad_change_is_refused_and_what_runs_goes_on(live_service, puzzle, healthy, change, wrong, words, eventually):
    before = healthy()
    change(**wrong)
    assert eventually(lambda: any(words in warning for warning in healthy()["warnings"]))
    assert healthy()["versions"] == before["versions"]
    assert live_service.ask(puzzle).status_code == 200


def test_adapters_that_do_not_load_are_refused_by_the_scorer(
    live_service, puzzle, healthy, change, tmp_path, eventually
):
    corrupt = shutil.copytree(Path(live_service.run_dir) / "scorer", tmp_path / "corrupt")
    (corrupt / "a1" / "head.safetensors").write_bytes(b"corrupt")
    record = json.loads((corrupt / "ensemble.json").read_text())
    record["meta"]["name"] = "corrupt"
    (corrupt / "ensemble.json").write_text(json.dumps(record))
    before = healthy()
    change(checkpoint=str(corrupt))
    assert eventually(lambda: any("head.safetensors cannot be read" in words for words in healthy()["warnings"]))
    assert healthy()["versions"] == before["versions"]
    assert live_service.ask(puzzle).status_code == 200
