"""What is counted: per request, per decision, per candidate. That Ray exports it, test_guarded_live shows."""

import pytest

from raydebm.service.access import Keyring
from raydebm.service.core import TriageService
from raydebm.service.ray import ingress
from raydebm.service.ray.ingress import RayMeter
from raydebm.service.routes.application import create_app


@pytest.fixture
def seen(monkeypatch):
    """Every value that would go to Ray: (metric, value, labels)."""
    values = []

    class Recorder:
        def __init__(self, name, description="", *args):
            assert description
            self.name = name
            self.labels = set(args[-1]) if args and isinstance(args[-1], tuple) else set()
            edges = args[0] if args and isinstance(args[0], list) else []
            assert all(edge > 0 for edge in edges), "Ray refuses other edges"
            assert edges == sorted(edges)

        def record(self, value, labels=None):
            assert set(labels or {}) == self.labels
            values.append((self.name, value, labels or {}))

        inc = observe = set = record

    for kind in ("Counter", "Gauge", "Histogram"):
        monkeypatch.setattr(ingress, kind, Recorder)
    return values


@pytest.fixture
def app(backend, seen, bundle_of):
    return create_app(TriageService(bundle_of(), backend, meter=RayMeter()))


@pytest.fixture
def of(seen):
    return lambda name: [(value, labels) for metric, value, labels in seen if metric == f"raydebm_{name}"]


def test_requests_are_counted_by_route_and_status(client, puzzle, of):
    client.post("/v1/triage", {"problem": puzzle})
    client.post("/v1/triage", {"problem": "x"})
    client.get("/v1/models/raydebm/nothing")
    assert of("requests") == [
        (1, {"route": "/v1/triage", "status": "200"}),
        (1, {"route": "/v1/triage", "status": "422"}),
        (1, {"route": "/v1/models/{model_id:path}", "status": "404"}),
    ]
    assert len(of("request_seconds")) == 3


def test_a_stream_that_fails_is_counted_though_answered_200(client, puzzle, of, script):
    script(lambda request: None)
    client.post("/v1/triage", {"problem": puzzle, "stream": True})

    assert [labels["status"] for _, labels in of("requests")] == ["200"]
    assert of("failures") == [(1, {"task": "knights_knaves", "status": "503", "code": "generation_failed"})]


def test_what_is_refused_before_the_router_counts_under_its_route(client, backend, puzzle, of, seen, bundle_of):
    service = TriageService(bundle_of(), backend, meter=RayMeter())
    stranger = type(client)(create_app(service, keyring=Keyring([])))
    stranger.post("/v1/triage", {"problem": puzzle})
    stranger.get("/v1/models/x")
    stranger.get("/v1/secret-path")

    assert [(labels["route"], labels["status"]) for _, labels in of("requests")] == [
        ("/v1/triage", "401"),
        ("/v1/models/{model_id:path}", "401"),
        ("other", "401"),
    ]


def test_decisions_are_counted_by_who_wrote_the_answer_and_with_sigma(client, puzzle, of, script, texts):
    script(lambda request: texts["right"] if request.generator == "bo" else None, energies=lambda text: (-3.0, -1.0))
    client.post("/v1/triage", {"problem": puzzle, "theta_sigma": 1.0})
    task = {"task": "knights_knaves"}
    assert of("decisions") == [(1, {**task, "decision": "accept", "generator": "bo"})]
    assert of("sigma") == [(1.0, task)]


def test_candidates_tokens_and_cost_are_counted_per_generator(client, puzzle, of, script, texts):
    script(lambda request: None if request.generator == "bo" else texts["right"])
    client.post("/v1/triage", {"problem": puzzle})
    ada = {"generator": "ada"}
    assert (
        of("candidates")
        == [(1, {**ada, "outcome": "written"})] * 2 + [(1, {"generator": "bo", "outcome": "failed"})] * 2
    )
    assert of("tokens") == [(10, {**ada, "kind": "prompt"}), (5, {**ada, "kind": "completion"})] * 2
    assert of("cost_usd") == [(0.5, ada)] * 2
